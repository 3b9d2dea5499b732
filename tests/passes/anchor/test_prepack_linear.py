import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import (
    assert_rewrites,
    assert_same,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    packed_post_ops,
)


def linear(dtype: str = "Float", weight: str = "%w", bias: str = "%none") -> str:
    return graph_ir(
        "%x : Tensor, %v : Tensor",
        f"%w : {dtype}(5, 6, strides=[6, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
        "%none : NoneType = prim::Constant()",
        f"%y : Tensor = aten::linear(%x, {weight}, {bias})",
        returns="%y",
    )


def test_fires_on_a_constant_weight():
    result = assert_rewrites("prepack_linear", linear())
    assert result.count("ipex::linear_prepack") == result.count("ipex::linear_run") == 1
    assert result.count("aten::linear") == 0


def test_declines_a_computed_weight():
    assert_unchanged("prepack_linear", linear(weight="%v"), reason="its weight is not a constant")


def test_adds_a_computed_bias_by_itself():
    result = assert_rewrites("prepack_linear", linear(bias="%v"))
    assert result.count("ipex::linear_run") == result.count("aten::add_") == 1


class ComputedBias(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(5, 6)), nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        bias = self.bias.clone()
        bias[1:3].zero_()
        return F.linear(x, self.weight, bias * scale).relu()


@pytest.mark.parametrize("shape", [(6,), (4, 6), (2, 3, 6)])
def test_a_computed_bias_matches_eager(shape):
    x, scale = torch.randn(shape), torch.tensor(0.5)
    optimized = check_against_eager(ComputedBias(), x, scale)
    assert packed_post_ops(optimized) == [["add_", "relu"]]
    model = ComputedBias().eval()
    traced = torch.jit.trace(model, (x, scale))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert_same(ipex.jit_optimize(traced)(x, scale), model(x, scale), 0.02)


@pytest.mark.parametrize("dtype", ["BFloat16", "Half"])
def test_takes_16_bit_weights(dtype):
    assert assert_rewrites("prepack_linear", linear(dtype)).count("aten::linear") == 0


def test_declines_other_dtypes():
    assert_unchanged("prepack_linear", linear("Double"), reason="its weight is Double, not float32")


def test_declines_a_weight_that_is_no_matrix():
    ir = linear().replace("(5, 6, strides=[6, 1]", "(6, strides=[1]")
    assert_unchanged("prepack_linear", ir, reason="its weight has 1 dimensions, not 2")


def test_declines_a_weight_on_another_device():
    model, x = nn.Linear(6, 5, device="meta").eval(), torch.randn(4, 6, device="meta")
    optimized = ipex.jit_optimize(torch.jit.trace(model, x, check_trace=False))
    assert "its weight is not a CPU tensor" in [d.reason for d in ipex.explain(optimized).declined]


def test_layers_share_constants_that_are_no_tensors():
    layers = 200
    ir = graph_ir(
        "%y0 : Tensor",
        "%w : Float(4, 4, strides=[4, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
        "%none : NoneType = prim::Constant()",
        *(f"%y{i + 1} : Tensor = aten::linear(%y{i}, %w, %none)" for i in range(layers)),
        returns=f"%y{layers}",
    )
    result = assert_rewrites("prepack_linear", ir)
    assert result.count("ipex::linear_run") == layers
    assert result.graph.count("prim::Constant") < layers / 4
