import math

import pytest
import torch
from torch import Tensor

import ipex  # noqa: F401
from support import assert_same, fast

Sizes = list[int]


def eager(x: Tensor, split: Sizes, joined: Sizes, *, may_copy: bool = False) -> Tensor:
    table = x.reshape(split) if may_copy else x.view(split)
    return table.transpose(1, 2).contiguous().view(joined)


def ours(x: Tensor, split: Sizes, joined: Sizes, *, may_copy: bool = False, channels_last: bool = False) -> Tensor:
    """`channels_last` as in a stretch, the input of which is contiguous in eager."""
    return torch.ops.ipex.channel_shuffle(x, split, joined, may_copy, not channels_last, not channels_last)


def sizes(x: Tensor, groups: int) -> tuple[Sizes, Sizes]:
    batch, channels, *image = x.shape
    return [batch, groups, channels // groups, *image], list(x.shape)


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("groups", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("width", [2, 3, 16, 37])
def test_matches_eager(groups, width):
    x = torch.randn(2, groups * width, 5, 3)
    x[0, 1] = math.nan
    split, joined = sizes(x, groups)
    expected = eager(x, split, joined)
    assert_same(ours(x, split, joined), expected, tolerance=0)
    assert_same(ours(channels_last(x), split, joined, channels_last=True), channels_last(expected), tolerance=0)
    assert_same(ours(x, split, joined, channels_last=True), channels_last(expected), tolerance=0)
    assert fast(lambda: ours(channels_last(x), split, joined, channels_last=True))


@pytest.mark.parametrize(
    ("split", "joined"),
    [
        ([-1, 2, 3, 4, 5], [2, 6, 4, 5]),
        ([2, -1, 3, 4, 5], [2, -1, 4, 5]),
        ([2, 2, -1, 4, 5], [-1, 6, 4, 5]),
        ([2, 2, 3, 4, -1], [2, 6, 4, -1]),
    ],
)
def test_a_size_that_is_left_open(split, joined):
    x = torch.randn(2, 6, 4, 5)
    assert_same(ours(channels_last(x), split, joined, channels_last=True), channels_last(eager(x, split, joined)), 0)
    assert fast(lambda: ours(channels_last(x), split, joined, channels_last=True))


def rest() -> dict[str, tuple[Tensor, Sizes, Sizes]]:
    """What the kernel does not take."""
    x = torch.randn(2, 6, 4, 5)
    return {
        "one group": (x, *sizes(x, 1)),
        "groups of one": (x, *sizes(x, 6)),
        "other split": (x, [2, 3, 4, 2, 5], [2, 6, 4, 5]),
        "other result": (x, [2, 2, 3, 4, 5], [4, 3, 4, 5]),
        "other rank": (x, [2, 2, 3, 4, 5], [2, 6, 20]),
        "no image": (x[0], [3, 2, 2, 2, 5], [6, 4, 1, 5]),
        "double": (x.double(), *sizes(x, 2)),
        "integers": (torch.arange(240).view(2, 6, 4, 5), *sizes(x, 3)),
        "empty": (x[:0], *sizes(x[:0], 2)),
    }


@pytest.mark.parametrize("name", rest())
def test_the_rest_is_computed_as_spelled(name):
    x, split, joined = rest()[name]
    expected = eager(x, split, joined)
    assert_same(ours(x, split, joined), expected, tolerance=0)
    laid_out, wanted = (channels_last(t) if t.dim() == 4 else t for t in (x, expected))
    assert_same(ours(laid_out, split, joined, channels_last=True), wanted, tolerance=0)
    assert not fast(lambda: ours(laid_out, split, joined, channels_last=True))


@pytest.mark.parametrize(
    ("split", "joined"),
    [
        ([2, 4, 2, 4, 5], [2, 6, 4, 5]),
        ([2, 4, -1, 4, 5], [2, 6, 4, 5]),
        ([2, 2, 3, 4, 5], [2, 5, 4, 5]),
        ([-1, -1, 3, 4, 5], [240]),
    ],
)
def test_sizes_that_eager_refuses(split, joined):
    x = torch.randn(2, 6, 4, 5)
    with pytest.raises(RuntimeError) as expected:
        eager(x, split, joined)
    for layout in (False, True):
        with pytest.raises(RuntimeError) as raised:
            ours(x, split, joined, channels_last=layout)
        assert str(expected.value) in str(raised.value)


def test_a_view_that_eager_refuses():
    x, split, joined = torch.randn(2, 6, 5, 4).transpose(2, 3), [2, 2, 3, 5, 4], [2, 6, 4, 5]
    with pytest.raises(RuntimeError, match="not compatible"):
        ours(x, split, joined)
    assert_same(ours(x, split, joined, may_copy=True), eager(x, split, joined, may_copy=True), tolerance=0)


def test_gradients_are_those_of_eager():
    x = torch.randn(2, 6, 4, 5, requires_grad=True)
    weight = torch.randn(2, 6, 4, 5)
    split, joined = sizes(x, 2)
    (expected,) = torch.autograd.grad((eager(x, split, joined) * weight).sum(), x)
    for layout in (False, True):
        y = ours(x, split, joined, channels_last=layout)
        assert_same(torch.autograd.grad((y * weight).sum(), x)[0].contiguous(), expected, tolerance=0)
