import re

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "fuse_add_norm"
CONSTANTS = (
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
    "%eps : float = prim::Constant[value=1e-05]()",
    "%true : bool = prim::Constant[value=1]()",
    "%shape : int[] = prim::Constant[value=[8]]()",
    "%w : Float(8, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
)
ADD = "%s : Tensor = aten::add(%a, %b, %one)"
NORM = "%y : Tensor = aten::layer_norm(%s, %shape, %w, %w, %eps, %true)"
INPUTS = "%a : Tensor, %b : Tensor"


def test_fires():
    result = assert_rewrites(NAME, graph_ir(INPUTS, *CONSTANTS, ADD, NORM, returns="%y"))
    assert result.count("ipex::layer_norm") == 1
    assert result.count("aten::add") == result.count("aten::layer_norm") == 0
    assert "prim::Constant[value=0]" in result.graph  # the sum is not kept


def test_keeps_the_sum_for_its_other_readers():
    later = "%t : Tensor = aten::neg(%s)"
    result = assert_rewrites(NAME, graph_ir(INPUTS, *CONSTANTS, ADD, NORM, later, returns="%y, %t, %s"))
    assert result.count("aten::add") == 0
    norm, kept = re.findall(r"(%\S+) : Tensor, (%\S+) : Tensor = ipex", result.graph)[0]
    assert f"aten::neg({kept})" in result.graph
    assert f"return ({norm}, " in result.graph
    assert f", {kept})" in result.graph
    assert "bool = prim::Constant[value=1]" in result.graph  # the sum is kept


def test_declines_a_sum_that_is_read_before():
    earlier = "%t : Tensor = aten::neg(%s)"
    ir = graph_ir(INPUTS, *CONSTANTS, ADD, earlier, NORM, returns="%y, %t")
    assert_unchanged(NAME, ir, reason="before the end")


def test_declines_a_sum_that_is_the_bias():
    norm = NORM.replace("%w, %w", "%w, %s")
    assert_unchanged(NAME, graph_ir(INPUTS, *CONSTANTS, ADD, norm, returns="%y"), reason="computed within")


def test_declines_another_alpha():
    ir = graph_ir(INPUTS, *CONSTANTS, ADD.replace("%one", "%two"), NORM, returns="%y")
    assert_unchanged(NAME, ir, reason="alpha is not 1")


def test_declines_a_number():
    ir = graph_ir(INPUTS, *CONSTANTS, ADD.replace("%b", "%two"), NORM, returns="%y")
    assert_unchanged(NAME, ir, reason="its operand is a number")


def test_declines_a_write_in_between():
    ir = graph_ir(INPUTS, *CONSTANTS, ADD, "%t : Tensor = aten::relu_(%a)", NORM, returns="%y")
    assert_unchanged(NAME, ir, reason="something is overwritten")


class Residual(nn.Module):
    """Normalises after the addition, or before it and adds to the stream."""

    def __init__(self, norm: nn.Module, stream: bool) -> None:
        super().__init__()
        self.linear, self.norm, self.stream = nn.Linear(8, 8), norm, stream

    def forward(self, x: Tensor) -> Tensor:
        total = x + self.linear(x)
        return total + self.linear(self.norm(total)) if self.stream else self.norm(total)


@pytest.mark.parametrize(("norm", "kind"), [(nn.LayerNorm(8), "layer_norm"), (nn.RMSNorm(8, eps=1e-6), "rms_norm")])
@pytest.mark.parametrize("stream", [False, True])
def test_matches_eager(norm, kind, stream, tmp_path):
    x = torch.randn(2, 3, 8)
    optimized = check_against_eager(Residual(norm, stream), x, also=(torch.randn(1, 8), torch.randn(0, 3, 8)))
    assert kinds(optimized)[f"ipex::{kind}.of_sum"] == 1
    assert kinds(optimized)[f"aten::{kind}"] == 0
    assert_round_trip(optimized, tmp_path, x)


class InPlace(nn.Module):
    """The sum has the dtype and the shape of the tensor that it overwrites."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        total = self.linear(x).neg()
        total += y
        return self.norm(total)


@pytest.mark.parametrize("shape", [(2, 3, 8), (1, 8), (8,), ()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_addition_in_place_keeps_the_dtype(shape, dtype):
    x, y = torch.randn(2, 3, 8), torch.randn(shape).to(dtype)
    optimized = check_against_eager(InPlace(), x, y)
    assert kinds(optimized)["ipex::layer_norm.of_sum"] == 1


def test_an_addition_in_place_refuses_a_larger_operand():
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(InPlace().eval(), (torch.randn(3, 8), torch.randn(3, 8))))
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            optimized(torch.randn(1, 8), torch.randn(3, 8))
