"""Packed ops with weights of 16 bits, on CPUs that multiply these no faster than floats: in float32, rounded once.

On other CPUs the same bounds hold for oneDNN's kernels.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from anchored import After, trace
from low_precision import both_dtypes, check_16_bit, check_lowered
from support import assert_round_trip, contexts, fallback_reasons, kinds

COMPUTES_IN_FLOAT = {
    torch.bfloat16: not ipex.isa.has_fast_avx512_bf16() and not ipex.isa.has_amx(),
    torch.float16: not ipex.isa.has_amx_fp16(),
}


@both_dtypes
@pytest.mark.parametrize("rows", [1, 3, 7, 33, 260])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (63, 17), (129, 200), (1100, 66)])
def test_linears_of_any_size(dtype, rows, inputs, outputs):
    """Odd widths, panels that are not full, few rows and many."""
    check_16_bit(nn.Sequential(nn.Linear(inputs, outputs), nn.GELU()), torch.randn(rows, inputs), dtype)


@both_dtypes
def test_rows_that_are_not_dense(dtype):
    linear = After(nn.Linear(24, 40), lambda f, x: f(x.transpose(0, 1)[..., :24]))
    check_16_bit(linear, torch.randn(9, 8, 30), dtype)


def test_the_result_is_rounded_once():
    """Products of bfloat16 numbers are exact in float32, and so are these sums: what is left is a rounding."""
    if not COMPUTES_IN_FLOAT[torch.bfloat16]:
        pytest.skip("oneDNN's kernels for bfloat16 compute")
    x, weight = (torch.randint(-64, 64, size).float() for size in ((50, 96), (70, 96)))
    linear = nn.Linear(96, 70, bias=False).eval()
    linear.weight.data = weight
    optimized = ipex.jit_optimize(trace(linear.bfloat16(), x.bfloat16()))
    with torch.no_grad():
        assert torch.equal(optimized(x.bfloat16()), F.linear(x, weight).bfloat16())


@both_dtypes
@pytest.mark.parametrize("groups", [1, 8])
def test_convolutions(tmp_path, dtype, groups):
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.even = nn.Conv2d(8, 16, 3, 2, 1, groups=groups), nn.Conv2d(16, 16, 3, padding=1)
            self.back = nn.ConvTranspose2d(16, 8, 2, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = F.silu(self.wide(x))
            return self.back(y + F.relu(self.even(y)))

    x = torch.randn(2, 8, 14, 10)
    for image in (x, x.to(memory_format=torch.channels_last), x[:, :, :7, :6], x[:1].expand(3, -1, -1, -1)):
        optimized = check_16_bit(Network(), image, dtype)
        assert fallback_reasons(optimized) == []
    assert_round_trip(optimized, tmp_path, x.to(dtype))


class Block(nn.Module):
    """As in MobileNetV2."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.project = nn.Conv2d(8, 48, 1), nn.Conv2d(48, 8, 1)
        self.depthwise = nn.Conv2d(48, 48, 3, padding=1, groups=48)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.project(F.relu6(self.depthwise(F.relu6(self.expand(x)))))


@both_dtypes
@pytest.mark.parametrize("pixels", [9, 160])
def test_a_chain_rounds_nothing_between_its_layers(tmp_path, dtype, pixels):
    """The larger image is convolved some rows at a time."""
    x = torch.randn(1, 8, pixels, pixels).to(memory_format=torch.channels_last)
    optimized = check_16_bit(Block(), x, dtype)
    assert kinds(optimized)["ipex::convolution_chain_run"] == 1
    assert_round_trip(optimized, tmp_path, x.to(dtype))
    check_lowered(Block(), x, dtype)


@both_dtypes
def test_a_chain_whose_operand_has_another_dtype(dtype):
    class Mixed(Block):
        def forward(self, x: Tensor, other: Tensor) -> Tensor:
            return other + self.project(F.relu6(self.depthwise(F.relu6(self.expand(x)))))

    x, other = (torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last) for _ in range(2))
    model = Mixed().eval().to(dtype)
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, (x.to(dtype), other)))
        for operand in (other, other.to(dtype)):
            ours, eager = optimized(x.to(dtype), operand), model(x.to(dtype), operand)
            assert ours.dtype == eager.dtype
            assert (ours - eager).abs().max() <= 4 * torch.finfo(dtype).eps * eager.abs().max()


@both_dtypes
def test_nan_stays_where_it_is(dtype):
    x = torch.randn(40, 96)
    x[3, 5], x[7, 2] = float("nan"), float("inf")
    linear = nn.Linear(96, 33).eval().to(dtype)
    with torch.no_grad():
        ours, eager = ipex.jit_optimize(trace(linear, x.to(dtype)))(x.to(dtype)), linear(x.to(dtype))
    assert torch.equal(ours.isnan(), eager.isnan())
    assert torch.equal(ours.isinf(), eager.isinf())


def test_inputs_and_operands_are_only_read():
    x, other = torch.randn(2, 8, 6, 6).bfloat16(), torch.randn(2, 8, 6, 6).bfloat16()
    model = After(nn.Conv2d(8, 8, 3, padding=1).eval().bfloat16(), lambda f, x, other: f(x) + other).eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, (x, other)))
    before = x.clone(), other.clone()
    with torch.no_grad():
        optimized(x, other)
    assert torch.equal(x, before[0])
    assert torch.equal(other, before[1])


def test_the_weight_that_is_saved_is_the_given_one():
    convolution = nn.Conv2d(8, 8, 3).eval().bfloat16()
    x = torch.randn(1, 8, 9, 9).bfloat16()
    optimized = ipex.jit_optimize(trace(convolution, x))
    with torch.no_grad():
        optimized(x)
    (context,) = contexts(optimized)
    assert torch.equal(context.__getstate__()[0][1]["weight"], convolution.weight)
