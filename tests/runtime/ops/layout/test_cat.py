"""ipex::cat is aten::cat in every respect but where the result lies."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ipex  # noqa: F401
from support import assert_same

# Results of 64 KiB and more lie in memory of ours.
WIDE = 9000


def check(*tensors: Tensor, dim: int = 0) -> None:
    y, expected = torch.ops.ipex.cat(tensors, dim), torch.cat(tensors, dim)
    assert_same(y, expected, tolerance=0)
    assert y.requires_grad == expected.requires_grad


@pytest.mark.parametrize("width", [3, WIDE])
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_matches_aten(width, dim):
    shapes = [[2, 3, width] for _ in range(3)]
    for i, shape in enumerate(shapes):
        shape[dim] += i
    tensors = [torch.randn(shape) for shape in shapes]
    check(*tensors, dim=dim)
    check(tensors[0], dim=dim)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.uint8, torch.complex64])
def test_dtypes(dtype):
    check(torch.ones(2, WIDE).to(dtype), torch.zeros(3, WIDE).to(dtype))


def test_layouts_are_those_of_aten():
    image = torch.randn(2, 8, 40, 40)
    pixels = image.to(memory_format=torch.channels_last)
    check(pixels, pixels, dim=1)
    check(pixels, image, dim=1)
    check(image, pixels, dim=1)
    check(pixels[:, :4], pixels[:, 4:], dim=1)
    check(image.transpose(2, 3), image[:, ::2], dim=1)
    check(image.permute(3, 2, 1, 0), image.permute(3, 2, 1, 0))
    check(torch.randn(1, 2, WIDE).expand(4, 2, WIDE), torch.randn(4, 1, WIDE), dim=1)


def test_what_only_aten_can_join():
    check(torch.randn(0), torch.randn(2, WIDE))
    check(torch.randn(2, WIDE), torch.ones(2, WIDE, dtype=torch.int64))
    check(torch.randn(2, WIDE), torch.ones(2, WIDE).bfloat16())
    check(torch.randn(0, WIDE), torch.randn(0, WIDE))
    check(torch.randn(2, WIDE).conj(), torch.randn(2, WIDE))
    check(torch.randn(2, WIDE, dtype=torch.complex64).conj(), torch.randn(2, WIDE, dtype=torch.complex64))
    with torch.autocast("cpu", torch.bfloat16):
        check(torch.randn(2, WIDE), torch.ones(2, WIDE).bfloat16())


@pytest.mark.parametrize(
    ("tensors", "dim"),
    [
        ([], 0),
        ([torch.tensor(1.0)], 0),
        ([torch.ones(2, WIDE)], 2),
        ([torch.ones(2, WIDE)], -3),
        ([torch.ones(2, WIDE), torch.ones(2, 3)], 0),
        ([torch.ones(2, WIDE), torch.ones(2, WIDE, 1)], 0),
    ],
)
def test_errors_are_those_of_aten(tensors, dim):
    with pytest.raises((RuntimeError, IndexError, ValueError)) as expected:
        torch.cat(tensors, dim)
    with pytest.raises(expected.type) as actual:
        torch.ops.ipex.cat(tensors, dim)
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_gradients_reach_the_tensors():
    tensors = [torch.randn(2, WIDE, requires_grad=True), torch.randn(3, WIDE)]
    check(*tensors)
    weight = torch.randn(5, WIDE)
    (gradient,) = torch.autograd.grad((torch.ops.ipex.cat(tensors, 0) * weight).sum(), tensors[0])
    assert_same(gradient, weight[:2])


def test_a_result_is_of_nobody_else():
    x = torch.randn(2, WIDE)
    y = torch.ops.ipex.cat([x], 0)
    y.zero_()
    assert x.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [(16, 17), (48, 48), (33, 16, 100), (5, 64), (700, 16)])
def test_runs_of_channels(dtype, channels):
    """Of images that are channels-last, also of pieces of them and of one that is spread; and of the last dimension."""
    images = [torch.randint(0, 255, (2, c, 5, 7)).to(dtype).to(memory_format=torch.channels_last) for c in channels]
    wide = torch.randint(0, 255, (2, 900, 5, 7)).to(dtype).to(memory_format=torch.channels_last)
    pieces = [wide[:, 100 : 100 + c] for c in channels]
    spread = torch.randint(0, 255, (2, 24, 1, 1)).to(dtype).to(memory_format=torch.channels_last).expand(2, 24, 5, 7)
    rows = [torch.randint(0, 255, (3, 4, c)).to(dtype) for c in channels]
    cropped = [x[:, :, 1:, :] for x in images]
    for tensors, dim in ((images, 1), (pieces, 1), ([*images, pieces[0]], -3), ([images[0], spread], 1), (rows, 2)):
        expected = torch.cat(tensors, dim)
        assert torch.equal(torch.ops.ipex.cat(tensors, dim), expected)
        assert torch.ops.ipex.cat(tensors, dim).stride() == expected.stride()
    assert torch.equal(torch.ops.ipex.cat(cropped, 1), torch.cat(cropped, 1))
