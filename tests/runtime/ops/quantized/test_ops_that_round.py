"""Norms and elementwise ops that give 8-bit numbers: to the bit what rounding their floats gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ipex  # noqa: F401
from support import assert_same

SCALE, ZERO = 0.031, 97
ops = torch.ops.ipex


PORT = {"rounded": [SCALE, float(ZERO)]}


def rounded(y: Tensor) -> Tensor:
    return ops.quantize(y, SCALE, ZERO)


def check(numbers: Tensor, floats: Tensor) -> None:
    assert numbers.dtype == torch.uint8
    assert_same(numbers, rounded(floats), tolerance=0)


@pytest.mark.parametrize("shape", [(1,), (7, 5), (3, 16), (2, 5, 33), (4, 768), (129, 64)])
@pytest.mark.parametrize("scales", [True, False])
def test_layer_norm(shape, scales):
    x, width = torch.randn(shape), [shape[-1]]
    weight, bias = (torch.randn(width), torch.randn(width)) if scales else (None, None)
    given = (x, width, weight, bias, 1e-5)
    check(ops.layer_norm(*given, **PORT), ops.layer_norm(*given))


@pytest.mark.parametrize("keep_sum", [True, False])
@pytest.mark.parametrize("shapes", [((3, 16), (3, 16)), ((2, 5, 33), (5, 33)), ((2, 1, 7), (2, 3, 7))])
def test_add_layer_norm(shapes, keep_sum):
    a, b = (torch.randn(shape) for shape in shapes)
    width = [shapes[0][-1]]
    given = (a, b, width, torch.randn(width), torch.randn(width), 1e-5, keep_sum, False)
    numbers, total = ops.layer_norm.of_sum(*given, **PORT)
    floats, expected = ops.layer_norm.of_sum(*given)
    check(numbers, floats)
    if keep_sum:
        assert torch.equal(total, expected)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("widths", [(1, 32, 7), (16, 16), (3,), (48, 20)])
def test_cat_batch_norm(widths, relu, memory_format):
    tensors = [torch.randn(2, width, 5, 9).contiguous(memory_format=memory_format) for width in widths]
    total = sum(widths)
    norm = (torch.randn(total), torch.randn(total), torch.randn(total), torch.rand(total) + 0.1, 1e-3, relu)
    check(ops.cat_batch_norm(tensors, *norm, [SCALE, float(ZERO)]), ops.cat_batch_norm(tensors, *norm))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [1, 5, 17, 64])
@pytest.mark.parametrize("steps", [["mul 0 1"], ["sigmoid 1", "mul 0 2", "add_number(0.5) 3"], ["gelu 0", "add 2 0"]])
def test_elementwise(steps, size, memory_format):
    x = torch.randn(2, size, 3, 7).contiguous(memory_format=memory_format)
    gate = torch.randn(2, size, 1, 1)
    check(ops.elementwise([x, gate], steps, SCALE, ZERO), ops.elementwise([x, gate], steps))


def test_what_no_kernel_takes_is_rounded_all_the_same():
    x = torch.randn(4, 6).t()
    check(ops.layer_norm(x, [4], None, None, 1e-5, **PORT), ops.layer_norm(x, [4], None, None, 1e-5))
    with torch.no_grad():
        check(ops.elementwise([x[:, :0]], ["relu 0"], SCALE, ZERO), torch.relu(x[:, :0]))
    with torch.autocast("cpu", enabled=True):
        check(ops.elementwise([x], ["relu 0"], SCALE, ZERO), torch.relu(x))


def test_nan_and_infinity():
    x = torch.tensor([[1.0, float("nan"), float("inf"), -float("inf")]])
    check(ops.elementwise([x], ["relu 0"], SCALE, ZERO), torch.relu(x))
    assert ops.layer_norm(x, [4], None, None, 1e-5, **PORT).tolist() == [[0, 0, 0, 0]]


def test_scales_are_checked():
    with pytest.raises(RuntimeError, match="expected a positive scale"):
        ops.elementwise([torch.randn(3)], ["relu 0"], rounded=[-1.0, float(ZERO)])
    with pytest.raises(RuntimeError, match="expected a zero point of 0 to 255"):
        ops.layer_norm(torch.randn(3), [3], None, None, 1e-5, rounded=[SCALE, 256.0])
