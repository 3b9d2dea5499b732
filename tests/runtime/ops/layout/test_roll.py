"""ipex::roll is aten::roll in every respect but how often it goes through memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ipex  # noqa: F401
from support import assert_same, own_thread_count, why_aten


def assert_same_roll(x: Tensor, shifts: list[int], dims: list[int]) -> None:
    before = x.clone()
    y = torch.ops.ipex.roll(x, shifts, dims)
    expected = torch.roll(x, shifts, dims)
    assert torch.equal(y, expected)
    assert (y.dtype, y.stride()) == (expected.dtype, expected.stride())
    assert torch.equal(x, before)
    assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize(
    ("shifts", "dims"),
    [
        ([-3, -3], [1, 2]),
        ([3, 3], [1, 2]),
        ([1], [0]),
        ([4], [-1]),
        ([2, -5, 100], [3, 0, 1]),
        ([0, 0], [1, 2]),
        ([7, -9], [1, 2]),  # once around
        ([1, 2], [1, 1]),  # one dimension twice
    ],
)
def test_matches_aten(dtype, shifts, dims):
    x = torch.randint(0, 100, (2, 7, 9, 5)).to(dtype)
    assert_same_roll(x, shifts, dims)
    assert why_aten(lambda: torch.ops.ipex.roll(x, shifts, dims)) is None


def test_sizes_and_threads():
    for shape in ((5,), (1, 1), (3, 1, 4), (2, 56, 56, 96), (1, 4, 6, 8, 32)):
        x = torch.randn(shape)
        with own_thread_count():
            for threads in (1, 3):
                torch.set_num_threads(threads)
                assert_same_roll(x, [-3] * len(shape), list(range(len(shape))))


LEFT_TO_ATEN = {
    "turned": (torch.randn(4, 6).t(), [1], [0], "not contiguous"),
    "channels-last": (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), [1], [2], "not contiguous"),
    "empty": (torch.randn(0, 3), [1], [0], "empty"),
    "flat": (torch.randn(4, 6), [5], [], "do not fit"),
    "gradient": (torch.randn(4, 6, requires_grad=True), [1], [0], "gradient"),
    "a number": (torch.tensor(1.0), [1], [], "do not fit"),
}


@pytest.mark.parametrize("case", LEFT_TO_ATEN.values(), ids=LEFT_TO_ATEN.keys())
def test_the_rest_is_atens(case):
    x, shifts, dims, reason = case
    assert reason in str(why_aten(lambda: torch.ops.ipex.roll(x, shifts, dims)))
    ours, expected = torch.ops.ipex.roll(x, shifts, dims), torch.roll(x, shifts, dims)
    assert_same(ours.detach(), expected.detach(), tolerance=0)
    assert ours.requires_grad == expected.requires_grad


@pytest.mark.parametrize(("shifts", "dims"), [([1, 2], [0]), ([1], [5]), ([1], [-3]), ([], [])])
def test_what_aten_refuses(shifts, dims):
    x = torch.randn(3, 4)
    with pytest.raises((RuntimeError, IndexError)) as expected:
        torch.ops.aten.roll(x, shifts, dims)
    with pytest.raises((RuntimeError, IndexError)) as actual:
        torch.ops.ipex.roll(x, shifts, dims)
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]
