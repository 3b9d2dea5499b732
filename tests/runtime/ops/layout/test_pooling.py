"""Pooling of images and volumes: aten's values, layouts, refusals and errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from support import assert_same, own_thread_count, why_aten


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


def contiguous(*shape: int) -> Tensor:
    return torch.randn(shape)


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
@pytest.mark.parametrize("make", [image, contiguous])
def test_matches_aten_bit_by_bit(windows, channels, make):
    for shape in ((2, channels, 14, 13), (1, channels, 13, 15), (1, channels, 9, 50)):
        x = make(*shape)
        expected = F.max_pool2d(x, *windows[:1], windows[1] or None, *windows[2:])
        assert in_aten(x, *windows) is None
        assert_same(pool(x, *windows), expected, tolerance=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS.keys())
@pytest.mark.parametrize("channels", [16, 17, 67, 200])
def test_16_bits_match_aten_bit_by_bit(dtype, windows, channels):
    x = image(2, channels, 14, 13).to(dtype)
    assert in_aten(x, *windows) is None
    assert_same(pool(x, *windows), F.max_pool2d(x, windows[0], windows[1] or None, *windows[2:]), tolerance=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_that_aten_pools(dtype):
    windows = WINDOWS["2x2"]
    for x, why in ((contiguous(1, 64, 9, 9), "channels-last"), (image(1, 3, 9, 9), "fill no register")):
        x = x.to(dtype)
        assert why in str(in_aten(x, *windows))
        assert_same(pool(x, *windows), F.max_pool2d(x, *windows), tolerance=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels", [5, 16, 64])
@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_nan_infinity_and_zeros(channels, memory_format, dtype):
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1.0])
    x = special[torch.randint(0, 6, (2, channels, 13, 14))].contiguous(memory_format=memory_format)
    for probability in (0.02, 0.5):
        sparse = torch.where(torch.rand(x.shape) < probability, x, torch.randn(x.shape))
        for y in (x, sparse.contiguous(memory_format=memory_format), torch.full_like(x, -torch.inf)):
            for windows in WINDOWS.values():
                y = y.to(dtype)
                ours = pool(y, *windows)
                expected = F.max_pool2d(y, windows[0], windows[1] or None, *windows[2:])
                assert_same(ours, expected, tolerance=0)
                assert torch.equal(torch.signbit(ours[ours == 0]), torch.signbit(expected[expected == 0]))


PLAIN = ([3, 3], [2, 2], [1, 1], [1, 1], False)
LEFT_TO_ATEN = {
    "a slice": (image(2, 4, 9, 9)[:, :, 1:], "not channels-last", "neither contiguous nor channels-last"),
    "some channels": (image(2, 8, 9, 9)[:, 2:6], "not channels-last", "neither contiguous nor channels-last"),
    "no batch": (torch.randn(4, 8, 8), "not channels-last", "no batch"),
    "no images": (image(0, 4, 8, 8), "is empty", "is empty"),
    "double": (image(2, 4, 8, 8).double(), "not a float32 CPU tensor", "not a float32 CPU tensor"),
    "gradient": (image(2, 4, 8, 8).requires_grad_(), "requires a gradient", "requires a gradient"),
}
AVERAGES_LEFT_TO_ATEN = LEFT_TO_ATEN | {
    "bfloat16": (image(2, 4, 8, 8).bfloat16(), "not a float32 CPU tensor", "not a float32 CPU tensor"),
    "contiguous": (torch.randn(2, 4, 8, 8), "not channels-last", ""),
    "one channel": (torch.randn(2, 1, 8, 8), "not channels-last", ""),
}


@pytest.mark.parametrize("case", LEFT_TO_ATEN.values(), ids=LEFT_TO_ATEN.keys())
def test_the_rest_is_left_to_aten(case):
    x, _, reason = case
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


def assert_same_means(pool_of: Callable[..., Tensor], aten_of: Callable[..., Tensor], x: Tensor, *arguments) -> None:
    """Bit by bit, and on the kernel."""
    assert why_aten(lambda: pool_of(x, *arguments)) is None
    ours, expected = pool_of(x, *arguments), aten_of(x, *arguments)
    assert_same(ours, expected, tolerance=0)
    assert torch.equal(torch.signbit(ours[ours == 0]), torch.signbit(expected[expected == 0]))


MEANS = {
    "3x3, as in a PoolFormer": ([3, 3], [1, 1], [1, 1], False, False, None),
    "3x3, with padding": ([3, 3], [1, 1], [1, 1], False, True, None),
    "2x2, as in a ResNet-D": ([2, 2], [2, 2], [0, 0], True, False, None),
    "no stride": ([3, 2], [], [0, 0], False, True, None),
    "one number for both": ([3], [2], [1], True, True, None),
    "ceil mode, padded": ([2, 3], [3, 2], [1, 1], True, False, None),
    "ceil mode, padding counts": ([2, 3], [3, 2], [1, 1], True, True, None),
    "ceil mode, a window in the padding alone": ([2, 2], [4, 3], [1, 1], True, True, None),
    "divisor": ([3, 3], [2, 1], [1, 1], True, True, 7),
    "large": ([7, 5], [1, 1], [3, 2], False, False, None),
    "gaps": ([1, 2], [3, 5], [0, 1], False, True, None),
    "one": ([1, 1], [1, 1], [0, 0], False, True, None),
}


@pytest.mark.parametrize("windows", MEANS.values(), ids=MEANS.keys())
@pytest.mark.parametrize("channels", [1, 3, 17, 64, 200])
@pytest.mark.parametrize("make", [image, contiguous])
def test_means_of_windows_match_aten_bit_by_bit(windows, channels, make):
    for shape in ((2, channels, 14, 13), (1, channels, 13, 15), (1, channels, 9, 50)):
        assert_same_means(torch.ops.ipex.avg_pool2d, torch.ops.aten.avg_pool2d, make(*shape), *windows)


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_means_of_nan_infinity_and_zeros(memory_format):
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1.0])
    x = special[torch.randint(0, 6, (2, 17, 13, 14))].contiguous(memory_format=memory_format)
    for y in (x, torch.full_like(x, -0.0), torch.where(torch.rand(x.shape) < 0.03, x, torch.ones_like(x))):
        for windows in MEANS.values():
            dense = y.contiguous(memory_format=memory_format)
            assert_same_means(torch.ops.ipex.avg_pool2d, torch.ops.aten.avg_pool2d, dense, *windows)


@pytest.mark.parametrize("case", LEFT_TO_ATEN.values(), ids=LEFT_TO_ATEN.keys())
def test_the_rest_of_means_is_left_to_aten(case):
    x, _, reason = case
    windows = MEANS["2x2, as in a ResNet-D"]
    assert reason in why_aten(lambda: torch.ops.ipex.avg_pool2d(x, *windows))
    ours, expected = torch.ops.ipex.avg_pool2d(x, *windows), torch.ops.aten.avg_pool2d(x, *windows)
    assert_same(ours.detach(), expected.detach(), tolerance=0)


def test_negative_divisors_are_left_to_aten():
    for x in (image(2, 4, 8, 8), torch.zeros(2, 4, 8, 8)):
        windows = ([2, 2], [4, 2], [1, 1], True, False, -3)
        assert "no positive number" in why_aten(lambda: torch.ops.ipex.avg_pool2d(x, *windows))  # noqa: B023
        assert_same(torch.ops.ipex.avg_pool2d(x, *windows), torch.ops.aten.avg_pool2d(x, *windows), tolerance=0)


REFUSED_MEANS = {
    "padding": ([3, 3], [1, 1], [2, 2], False, True, None),
    "no size": ([0, 3], [1, 1], [0, 0], False, True, None),
    "no windows": ([], [], [0, 0], False, True, None),
    "no stride": ([3, 3], [0, 1], [0, 0], False, True, None),
    "small image": ([9, 9], [1, 1], [0, 0], False, True, None),
    "three numbers": ([3, 3, 3], [1, 1], [0, 0], False, True, None),
    "divisor of 0": ([3, 3], [1, 1], [0, 0], False, True, 0),
}


@pytest.mark.parametrize("windows", REFUSED_MEANS.values(), ids=REFUSED_MEANS.keys())
@pytest.mark.parametrize("make", [image, contiguous])
def test_means_that_aten_refuses(windows, make):
    x = make(2, 8, 7, 7)
    with pytest.raises(RuntimeError) as expected:
        torch.ops.aten.avg_pool2d(x, *windows)
    with pytest.raises(RuntimeError) as actual:
        torch.ops.ipex.avg_pool2d(x, *windows)
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]


VOLUMES = {  # size, stride, padding, ceil_mode
    "3x3x3": ([3, 3, 3], [1, 1, 1], [1, 1, 1], False),
    "1x3x3, as in an MViT": ([1, 3, 3], [1, 2, 2], [0, 1, 1], False),
    "one number for all": ([2], [2], [0], True),
    "no stride": ([2, 3, 2], [], [1, 1, 0], True),
    "gaps": ([1, 2, 1], [2, 3, 5], [0, 1, 0], True),
}


@pytest.mark.parametrize("windows", VOLUMES.values(), ids=VOLUMES.keys())
@pytest.mark.parametrize("memory_format", [torch.channels_last_3d, torch.contiguous_format])
@pytest.mark.parametrize("channels", [3, 16, 40])
def test_volumes_match_aten_bit_by_bit(windows, memory_format, channels):
    *geometry, ceil_mode = windows
    x = torch.randn(2, channels, 5, 12, 37).contiguous(memory_format=memory_format)
    x[torch.rand(x.shape) < 0.02] = torch.nan
    assert why_aten(lambda: torch.ops.ipex.max_pool3d(x, *geometry, [1], ceil_mode)) is None
    expected = torch.ops.aten.max_pool3d(x, *geometry, [1], ceil_mode)
    assert_same(torch.ops.ipex.max_pool3d(x, *geometry, [1], ceil_mode), expected, tolerance=0)
    for more in ((True, None), (False, None), (True, 5)):
        assert_same_means(torch.ops.ipex.avg_pool3d, torch.ops.aten.avg_pool3d, x, *geometry, ceil_mode, *more)


def test_volumes_that_are_left_to_aten():
    x = torch.randn(4, 5, 6, 7)
    assert "no batch" in why_aten(lambda: torch.ops.ipex.max_pool3d(x, [2], [], [0], [1], False))
    assert "no batch" in why_aten(lambda: torch.ops.ipex.avg_pool3d(x, [2], [], [0], False, True, None))
    assert_same(torch.ops.ipex.max_pool3d(x, [2], [], [0], [1], False), F.max_pool3d(x, 2), tolerance=0)
    assert_same(torch.ops.ipex.avg_pool3d(x, [2], [], [0], False, True, None), F.avg_pool3d(x, 2), tolerance=0)


def test_a_gradient_of_a_volume_without_a_batch_may_lie_channels_last():
    x = torch.randn(5, 4, 8, 8)
    gradient = torch.randn(5, 2, 4, 4).contiguous(memory_format=torch.channels_last)
    ours, batched = x.clone().requires_grad_(), x.clone().requires_grad_()
    torch.ops.ipex.max_pool3d(ours, [2], [], [0], [1], False).backward(gradient)
    F.max_pool3d(batched[None], 2)[0].backward(gradient)
    assert_same(ours.grad, batched.grad, tolerance=0)


@pytest.mark.parametrize("size", [(2, 5, 5), (5, 2, 5), (5, 5, 2)])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_means_of_volumes_that_aten_refuses(size, ceil_mode):
    windows = ([3], [1], [1], ceil_mode, True, None)
    x = torch.randn(2, 3, *size)
    for op in (torch.ops.aten.avg_pool3d, torch.ops.ipex.avg_pool3d):
        with pytest.raises(RuntimeError, match="smaller than kernel size"):
            op(x, *windows)
    assert torch.ops.ipex.max_pool3d(x, [3], [1], [1], [1], ceil_mode).shape == x.shape


ROWS = {  # size, stride, padding, ceil_mode, count_include_pad
    "2": ([2], [2], [0], False, True),
    "5, padded": ([5], [1], [2], False, False),
    "3, ceil mode": ([3], [2], [1], True, True),
    "no stride": ([2], [], [1], True, True),
    "far apart": ([3], [4], [1], True, False),
    "further than they reach": ([2], [17], [1], True, False),
}


@pytest.mark.parametrize("windows", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("shape", [(2, 17, 50), (1, 64, 333), (3, 1, 7), (1, 8, 2)])
def test_means_of_rows_match_aten_bit_by_bit(windows, shape):
    x = torch.randn(shape)
    turned = torch.randn(shape[0], shape[2], shape[1]).transpose(1, 2)
    for rows in (x, turned, torch.cat([x, x], 2)[..., : shape[2]]):
        ours, expected = torch.ops.ipex.avg_pool1d(rows, *windows), torch.ops.aten.avg_pool1d(rows, *windows)
        assert_same(ours, expected, tolerance=0)
    assert why_aten(lambda: torch.ops.ipex.avg_pool1d(x, *windows)) is None
    assert_same(torch.ops.ipex.avg_pool1d(x.double(), *windows), torch.ops.aten.avg_pool1d(x.double(), *windows))


def test_means_of_rows_that_are_left_to_aten():
    x, windows = torch.randn(4, 30), ([3], [2], [1], False, True)
    assert "no batch" in why_aten(lambda: torch.ops.ipex.avg_pool1d(x, *windows))
    assert_same(torch.ops.ipex.avg_pool1d(x, *windows), torch.ops.aten.avg_pool1d(x, *windows), tolerance=0)
    for refused in (([0], [1], [0]), ([9], [1], [0]), ([3, 3], [1], [0]), ([3], [1], [2])):
        for op in (torch.ops.aten.avg_pool1d, torch.ops.ipex.avg_pool1d):
            with pytest.raises(RuntimeError):
                op(torch.randn(1, 2, 4), *refused, False, True)


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


@pytest.mark.parametrize("case", AVERAGES_LEFT_TO_ATEN.values(), ids=AVERAGES_LEFT_TO_ATEN.keys())
def test_other_averages_are_left_to_aten(case):
    x, reason, _ = case
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


@pytest.mark.parametrize("shape", [(1, 32, 112, 112), (2, 17, 50, 60), (1, 1152, 7, 7), (3, 96, 33, 20)])
def test_means_are_the_same_for_any_number_of_threads(shape):
    x = image(*shape)
    with own_thread_count():
        torch.set_num_threads(1)
        alone = mean(x, [2, 3])
        for threads in (2, 3, 7):
            torch.set_num_threads(threads)
            assert torch.equal(mean(x, [2, 3]), alone)
    assert_same(alone, mean_of(x.double(), [2, 3]).float())


@pytest.mark.parametrize("case", AVERAGES_LEFT_TO_ATEN.values(), ids=AVERAGES_LEFT_TO_ATEN.keys())
def test_other_means_are_left_to_aten(case):
    x, reason, _ = case
    assert reason in why_aten(lambda: mean(x, [-2, -1]))
    assert_same(mean(x, [-2, -1]).detach(), mean_of(x, [-2, -1]).detach(), tolerance=0)


def test_means_of_other_dimensions_are_left_to_aten():
    for x, dims in ((image(2, 8, 9, 7), [1, 2]), (torch.randn(2, 3, 4, 5, 6), [2, 3])):
        assert why_aten(lambda: mean(x, dims)) is not None  # noqa: B023
        assert_same(mean(x, dims), mean_of(x, dims), tolerance=0)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_8_bit_floats_are_aten_s(dtype):
    """No kernel may read them as wider floats."""
    x = torch.zeros(1, 32, 8, 8).to(dtype).contiguous(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="not implemented for 'Float8"):
        torch.ops.ipex.max_pool2d(x, [2, 2], [2, 2], [0, 0], [1, 1], False)
