"""Pooling of channels-last images: aten's values, layouts, refusals and errors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from support import assert_same, why_aten


def pool(
    x: Tensor,
    size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> Tensor:
    return torch.ops.ipex.max_pool2d(x, size, stride, padding, dilation, ceil_mode)


def image(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


def in_aten(x: Tensor, *arguments: object) -> str | None:
    """Why a call was left to aten."""
    return why_aten(lambda: pool(x, *arguments))  # type: ignore[arg-type]


WINDOWS = {
    "3x3, as in a ResNet": ([3, 3], [2, 2], [1, 1], [1, 1], False),
    "2x2": ([2, 2], [2, 2], [0, 0], [1, 1], False),
    "no stride": ([3, 2], [], [0, 0], [1, 1], False),
    "one number for both": ([3], [2], [1], [1], True),
    "ceil mode": ([3, 3], [2, 2], [0, 0], [1, 1], True),
    "ceil mode, padded": ([2, 3], [3, 2], [1, 1], [1, 1], True),
    "ceil mode, a window in the padding alone": ([2, 2], [4, 3], [1, 1], [1, 1], True),
    "dilated": ([3, 2], [1, 2], [1, 1], [2, 3], False),
    "dilated, padded by more than a pixel": ([4, 5], [2, 1], [2, 2], [2, 3], True),
    "large": ([7, 5], [1, 1], [3, 2], [1, 1], False),
    "gaps": ([1, 2], [3, 5], [0, 1], [1, 1], False),
    "one": ([1, 1], [1, 1], [0, 0], [1, 1], False),
}


@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS.keys())
@pytest.mark.parametrize("channels", [2, 3, 8, 17, 64, 67, 200])
def test_matches_aten_bit_by_bit(windows, channels):
    for shape in ((2, channels, 14, 13), (1, channels, 13, 15)):
        x = image(*shape)
        expected = F.max_pool2d(x, *windows[:1], windows[1] or None, *windows[2:])
        assert in_aten(x, *windows) is None
        assert_same(pool(x, *windows), expected, tolerance=0)


@pytest.mark.parametrize("channels", [5, 16, 64])
def test_nan_infinity_and_zeros(channels):
    x = image(2, channels, 13, 14)
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1.0])
    x = special[torch.randint(0, 6, x.shape)].to(memory_format=torch.channels_last)
    for probability in (0.02, 0.5):
        sparse = torch.where(torch.rand(x.shape) < probability, x, torch.randn(x.shape))
        for y in (x, sparse.to(memory_format=torch.channels_last), torch.full_like(x, -torch.inf)):
            for windows in WINDOWS.values():
                ours = pool(y, *windows)
                expected = F.max_pool2d(y, windows[0], windows[1] or None, *windows[2:])
                assert_same(ours, expected, tolerance=0)
                assert torch.equal(torch.signbit(ours[ours == 0]), torch.signbit(expected[expected == 0]))


PLAIN = ([3, 3], [2, 2], [1, 1], [1, 1], False)
LEFT_TO_ATEN = {
    "contiguous": (torch.randn(2, 4, 8, 8), "not channels-last"),
    "no batch": (torch.randn(4, 8, 8), "not channels-last"),
    "a slice": (image(2, 4, 9, 9)[:, :, 1:], "not channels-last"),
    "some channels": (image(2, 8, 9, 9)[:, 2:6], "not channels-last"),
    "no images": (image(0, 4, 8, 8), "not channels-last"),
    "one channel": (torch.randn(2, 1, 8, 8), "not channels-last"),
    "double": (image(2, 4, 8, 8).double(), "not a float32 CPU tensor"),
    "bfloat16": (image(2, 4, 8, 8).bfloat16(), "not a float32 CPU tensor"),
    "gradient": (image(2, 4, 8, 8).requires_grad_(), "requires a gradient"),
}


@pytest.mark.parametrize("case", LEFT_TO_ATEN.values(), ids=LEFT_TO_ATEN.keys())
def test_the_rest_is_left_to_aten(case):
    x, reason = case
    assert reason in in_aten(x, *PLAIN)
    assert_same(pool(x, *PLAIN).detach(), F.max_pool2d(x, *PLAIN).detach(), tolerance=0)


def test_gradients_are_atens():
    x = image(2, 4, 8, 8)
    gradients = []
    for function in (pool, F.max_pool2d):
        leaf = x.clone().requires_grad_()
        function(leaf, *PLAIN).square().sum().backward()
        gradients.append(leaf.grad)
    assert_same(gradients[0], gradients[1], tolerance=0)


REFUSED = {
    "padding": ([3, 3], [1, 1], [2, 2], [1, 1], False),
    "padding, dilated": ([3, 3], [1, 1], [2, 2], [2, 2], False),
    "negative padding": ([3, 3], [1, 1], [-1, -1], [1, 1], False),
    "no size": ([0, 3], [1, 1], [0, 0], [1, 1], False),
    "no stride": ([3, 3], [0, 1], [0, 0], [1, 1], False),
    "no dilation": ([3, 3], [1, 1], [0, 0], [0, 1], False),
    "small image": ([9, 9], [1, 1], [0, 0], [1, 1], False),
    "three numbers": ([3, 3, 3], [1, 1], [0, 0], [1, 1], False),
}


@pytest.mark.parametrize("windows", REFUSED.values(), ids=REFUSED.keys())
def test_what_aten_refuses(windows):
    x = image(2, 8, 7, 7)
    with pytest.raises(RuntimeError) as expected:
        torch.ops.aten.max_pool2d(x, *windows)
    with pytest.raises(RuntimeError) as actual:
        pool(x, *windows)
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_threads_give_the_same():
    x = image(3, 24, 40, 40)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = pool(x, *PLAIN)
        torch.set_num_threads(3)
        assert_same(pool(x, *PLAIN), one, tolerance=0)
    finally:
        torch.set_num_threads(before)


average = torch.ops.ipex.adaptive_avg_pool2d
average_of = F.adaptive_avg_pool2d


@pytest.mark.parametrize("channels", [2, 3, 8, 17, 64, 67, 200])
def test_averages_match_aten(channels):
    for shape in ((2, channels, 14, 13), (1, channels, 1, 7), (3, channels, 112, 113)):
        x = image(*shape)
        assert why_aten(lambda: average(x, [1, 1])) is None  # noqa: B023
        assert_same(average(x, [1, 1]), average_of(x, 1))


def test_averages_of_large_images_are_accurate():
    x = (torch.rand(1, 16, 500, 500) + 100).to(memory_format=torch.channels_last)
    assert_same(average(x, [1, 1]).double(), average_of(x.double(), 1), tolerance=1e-6)


@pytest.mark.parametrize("channels", [5, 16, 64])
def test_averages_of_nan_and_infinity(channels):
    for special in (torch.nan, torch.inf, -torch.inf):
        x = image(2, channels, 7, 7)
        x[0, channels // 2, 3, 3] = special
        assert_same(average(x, [1, 1]), average_of(x, 1))


@pytest.mark.parametrize("case", LEFT_TO_ATEN.values(), ids=LEFT_TO_ATEN.keys())
def test_other_averages_are_left_to_aten(case):
    x, reason = case
    assert reason in why_aten(lambda: average(x, [1, 1]))
    assert_same(average(x, [1, 1]).detach(), average_of(x, 1).detach(), tolerance=0)


def test_averages_of_parts_are_left_to_aten():
    x = image(2, 8, 9, 7)
    assert why_aten(lambda: average(x, [2, 1])) == "its result is not one pixel"
    assert_same(average(x, [2, 1]), average_of(x, (2, 1)), tolerance=0)


@pytest.mark.parametrize("size", [[], [1], [1, 1, 1], [-1, 1]])
def test_averages_that_aten_refuses(size):
    x = image(2, 8, 7, 7)
    with pytest.raises(RuntimeError) as expected:
        torch.ops.aten.adaptive_avg_pool2d(x, size)
    with pytest.raises(RuntimeError) as actual:
        average(x, size)
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]


mean = torch.ops.ipex.mean


def mean_of(x: Tensor, dims: list[int]) -> Tensor:
    return x.mean(dims, keepdim=True)


@pytest.mark.parametrize("dims", [[2, 3], [-1, -2]])
@pytest.mark.parametrize("channels", [2, 17, 64])
def test_means_match_aten(channels, dims):
    for shape in ((2, channels, 14, 13), (1, channels, 1, 7), (3, channels, 112, 113)):
        x = image(*shape)
        assert why_aten(lambda: mean(x, dims)) is None  # noqa: B023
        assert_same(mean(x, dims), mean_of(x, dims))
        assert_same(mean(x, dims, False), x.mean(dims))


@pytest.mark.parametrize("case", LEFT_TO_ATEN.values(), ids=LEFT_TO_ATEN.keys())
def test_other_means_are_left_to_aten(case):
    x, reason = case
    assert reason in why_aten(lambda: mean(x, [-2, -1]))
    assert_same(mean(x, [-2, -1]).detach(), mean_of(x, [-2, -1]).detach(), tolerance=0)


def test_means_of_other_dimensions_are_left_to_aten():
    for x, dims in ((image(2, 8, 9, 7), [1, 2]), (torch.randn(2, 3, 4, 5, 6), [2, 3])):
        assert why_aten(lambda: mean(x, dims)) is not None  # noqa: B023
        assert_same(mean(x, dims), mean_of(x, dims), tolerance=0)
