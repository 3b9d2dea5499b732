"""Linears whose weight came as codes: fires, declines, and what the other options of jit_optimize make of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex.quantization import WeightOnlyLinear
from support import assert_same, kinds, packed_post_ops

CODES, SCALES = torch.randint(-8, 8, (64, 128), dtype=torch.int8), torch.rand(64, 4)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def linear(**tensors: Tensor) -> WeightOnlyLinear:
    return WeightOnlyLinear(CODES, SCALES, **tensors, bits=4, group_size=32)


def reasons(model: torch.jit.ScriptModule, pass_name: str) -> list[str]:
    return [d.reason for d in ipex.explain(model) if d.pass_name == pass_name]


def test_fires_and_takes_post_ops():
    model, x = nn.Sequential(linear(bias=torch.randn(64)), nn.GELU()).eval(), torch.randn(3, 128)
    optimized = ipex.jit_optimize(model, x)
    assert reasons(optimized, "prepack_weight_only_linear") == ["prepacked"]
    found = kinds(optimized)
    assert (found["ipex::weight_only_linear_run"], found["ipex::weight_only_linear"], found["aten::gelu"]) == (1, 0, 0)
    assert packed_post_ops(optimized) == [["gelu"]]
    assert_same(optimized(x), model(x))


def test_declines_codes_that_are_computed():
    class Computed(nn.Module):
        def forward(self, x: Tensor, scales: Tensor) -> Tensor:
            codes = torch.ops.aten.clone(CODES)
            return torch.ops.ipex.weight_only_linear(x, codes, scales, None, None, None, 128, 32)

    x = torch.randn(3, 128)
    optimized = ipex.jit_optimize(Computed().eval(), (x, SCALES))
    assert reasons(optimized, "prepack_weight_only_linear") == ["its weight is not a constant"]
    assert_same(optimized(x, SCALES), x @ (CODES * SCALES.repeat_interleave(32, 1)).t())


def test_nothing_folds_into_it():
    """It has no weight that a constant, or a batch_norm, could be multiplied into."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = linear(), nn.BatchNorm1d(64)
            self.norm.running_mean.normal_()
            self.factor = nn.Parameter(torch.rand(64))

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.linear(x) * self.factor)

    model, x = Scaled().eval(), torch.randn(3, 128)
    assert_same(ipex.jit_optimize(model, x)(x), model(x))


def test_other_options_say_why_they_leave_it():
    model, x = nn.Sequential(linear(), nn.ReLU()).eval(), torch.randn(3, 128)
    in_mode = ipex.jit_optimize(model, x, fp32_math_mode=ipex.FP32MathMode.BF32)
    assert reasons(in_mode, "pin_math_mode") == ["its weight came as codes"]
    lowered = ipex.jit_optimize(model, x, dtype=torch.bfloat16)
    assert reasons(lowered, "lower_precision") == ["it computes in float32"]
    quantized = ipex.quantization.weight_only(model, x)
    for own in (in_mode, lowered, quantized):
        assert_same(own(x), model(x))


def test_a_wrong_weight_is_an_error_with_a_reason():
    with pytest.raises(RuntimeError, match="expected a weight of one of int8, int4, .* for 127 inputs, got Byte"):
        torch.ops.ipex.weight_only_linear(
            torch.randn(3, 127), linear().codes[:, :-1], SCALES, None, None, None, 127, 32
        )
