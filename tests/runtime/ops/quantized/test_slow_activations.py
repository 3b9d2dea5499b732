"""Layers in int8 that end in an activation which a kernel of ours computes quickly, of floats in the cache."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ipex

ACTIVATIONS = {
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
INPUT, SCALE, ZERO = [0.02, 3.0], 0.01, 40.0


def layers(activation: str, result: list[float], kernel: int, groups: int, wide: int) -> tuple[Tensor, Tensor]:
    """An image and what the layer makes of it."""
    torch.manual_seed(0)
    weight = torch.randint(-127, 128, (wide, 32 // groups, kernel, kernel), dtype=torch.int8)
    scales, bias = torch.rand(wide) * 1e-3 + 1e-4, torch.randn(wide)
    x = torch.randint(0, 256, (2, 32, 41, 37), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    packed = torch.ops.ipex.quantized_convolution_prepack(
        weight, scales, bias, [1, 1], [kernel // 2] * 4, [1, 1], groups, [activation], INPUT, result, []
    )
    return x, torch.ops.ipex.quantized_convolution_run(x, packed, [], True)


def assert_rounded(actual: Tensor, floats: Tensor) -> None:
    """Numbers of these floats. Such as lie in the middle of two may be either."""
    exact = (floats.double() / SCALE + ZERO).clamp(0, 255)
    assert actual.dtype == torch.uint8
    assert actual.stride() == floats.stride()
    assert (actual.double() - exact).abs().max() <= 0.5 + 0.01


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("kernel", "groups", "wide"), [(1, 1, 24), (1, 1, 200), (3, 1, 24), (3, 32, 32)])
def test_convolutions(activation, kernel, groups, wide):
    _, floats = layers(activation, [], kernel, groups, wide)
    _, numbers = layers(activation, [SCALE, ZERO], kernel, groups, wide)
    assert_rounded(numbers, floats)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("rows", [1, 7, 3001])
def test_linears(activation, rows):
    torch.manual_seed(0)
    weight, scales = torch.randint(-127, 128, (96, 64), dtype=torch.int8), torch.rand(96) * 1e-3 + 1e-4
    x = torch.randint(0, 256, (rows, 64), dtype=torch.uint8)

    def result(affine: list[float]) -> Tensor:
        ops = torch.ops.ipex
        packed = ops.quantized_linear_prepack(weight, scales, torch.randn(96) * 0, [activation], INPUT, affine, [])
        return ops.quantized_linear_run(x, packed, [], True)

    assert_rounded(result([SCALE, ZERO]), result([]))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_large_and_not_finite(activation):
    """The bias alone decides."""
    if activation.startswith("gelu") and not ipex.isa.has_amx():
        pytest.skip("oneDNN computes it, which is another matter")
    # aten has NaN for gelu of infinity.
    largest = 1e30 if activation == "gelu" else float("inf")
    values = [float("nan"), largest, float("-inf"), 3e38, -3e38, 200.0, -200.0, 0.0]
    bias = torch.tensor(values * 4)
    zeros, scales = torch.zeros(32, 32, dtype=torch.int8), torch.ones(32)
    x = torch.full((300, 32), 3, dtype=torch.uint8)
    ops = torch.ops.ipex
    packed = ops.quantized_linear_prepack(zeros, scales, bias, [activation], INPUT, [SCALE, ZERO], [])
    expected = ops.quantize(ACTIVATIONS[activation](bias), SCALE, int(ZERO))
    actual = ops.quantized_linear_run(x, packed, [], True)
    assert torch.equal(actual, expected.expand(300, -1))
