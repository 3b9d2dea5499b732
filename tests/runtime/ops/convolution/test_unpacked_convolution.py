"""Convolutions whose weight is computed in each call: eager's values and strides, or aten's op and a reason."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from support import assert_same, own_thread_count, why_aten


def ours(x: Tensor, w: Tensor, b: Tensor | None = None, stride=1, padding=1, dilation=1, groups=None) -> Tensor:
    pair = [[value] * 2 if isinstance(value, int) else value for value in (stride, padding, dilation)]
    return torch.ops.ipex.unpacked_convolution(x, w, b, *pair, x.size(1) if groups is None else groups, True)


@pytest.mark.parametrize("channels", [2, 7, 16, 40])
@pytest.mark.parametrize("window", [(1, 1), (3, 3), (5, 4), (1, 7)])
@pytest.mark.parametrize("stride", [1, 2, [1, 3]])
@pytest.mark.parametrize("padding", [0, 1, [3, 2]])
def test_matches_eager(channels, window, stride, padding):
    bias = torch.randn(channels)
    for x in (
        torch.randn(2, channels, 9, 8),
        torch.randn(1, channels, 8, 30),
        torch.randn(3, channels, 6, 7)[:, :, 1:],
    ):
        w = torch.randn(channels, 1, *window)
        for b in (None, bias):
            expected = F.conv2d(x, w, b, stride, padding, 1, channels)
            assert_same(ours(x, w, b, stride, padding), expected, 1e-6)
            assert why_aten(lambda: ours(x, w, b, stride, padding)) is None  # noqa: B023


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("groups", [1, 2, 5])
@pytest.mark.parametrize("size", [(1, 1), (7, 9), (30, 31)])
def test_windows_of_one_pixel(images, groups, size):
    x, w, bias = torch.randn(images, 10, *size), torch.randn(20, 10 // groups, 1, 1), torch.randn(20)
    for image in (x, torch.randn(images, 10, size[1], size[0]).transpose(2, 3), x[:, :, ::2]):
        for b in (None, bias):
            expected = F.conv2d(image, w, b, groups=groups)
            assert_same(ours(image, w, b, padding=0, groups=groups), expected, 2e-6)
            assert why_aten(lambda: ours(image, w, b, padding=0, groups=groups)) is None  # noqa: B023


def test_channels_last_images():
    for channels, images in ((7, 1), (16, 3)):
        x = torch.randn(images, channels, 9, 8).to(memory_format=torch.channels_last)
        taps, w, bias = torch.randn(channels, 1, 3, 3), torch.randn(12, channels, 1, 1), torch.randn(12)
        assert_same(ours(x, taps), F.conv2d(x, taps, padding=1, groups=channels), 1e-6)
        assert_same(ours(x, w, padding=0, groups=1), F.conv2d(x, w), 2e-6)
        assert_same(ours(x, w, bias, padding=0, groups=1), F.conv2d(x, w, bias), 2e-6)
        assert why_aten(lambda: (ours(x, taps), ours(x, w, padding=0, groups=1))) is None  # noqa: B023


def test_groups_of_channels_last_images_are_left_to_aten():
    x, w = torch.randn(2, 6, 5, 4).to(memory_format=torch.channels_last), torch.randn(8, 3, 1, 1)
    assert_same(ours(x, w, padding=0, groups=2), F.conv2d(x, w, groups=2), 1e-6)
    assert why_aten(lambda: ours(x, w, padding=0, groups=2)) == "it is not depthwise"


def of_images(x: Tensor, w: Tensor, permutes: bool, images: int, channels: int, groups: int) -> Tensor:
    sizes = [1, x.size(0) * x.size(1), *x.shape[2:]]
    how = ([1, 1], [0, 0], [1, 1], groups, True, False, permutes, images, channels)
    return torch.ops.ipex.image_weights_convolution(x, sizes, w, None, *how)


@pytest.mark.parametrize("permutes", [False, True])
@pytest.mark.parametrize("images", [1, 3])
def test_weights_of_images(images, permutes):
    x, w = torch.randn(images, 6, 5, 4), torch.randn(images * 8, 6, 1, 1)
    expected = torch.cat([F.conv2d(x[i : i + 1], w[8 * i : 8 * i + 8]) for i in range(images)])
    assert_same(of_images(x, w, permutes, images, 8, images), expected, 1e-6)
    last = x.to(memory_format=torch.channels_last)
    y = of_images(last, w, permutes, images, 8, images)
    torch.testing.assert_close(y, expected)
    assert y.is_contiguous(memory_format=torch.channels_last if images == 1 else torch.contiguous_format)


def test_a_single_pixel_has_eagers_strides():
    x, w = torch.randn(1, 6, 3, 3), torch.randn(6, 1, 3, 3)
    assert_same(ours(x, w, padding=0), F.conv2d(x, w, groups=6), 1e-6)
    assert_same(ours(x[:, :, :1, :1], w), F.conv2d(x[:, :, :1, :1], w, padding=1, groups=6), 1e-6)


def test_nan_and_infinity_stay_in_their_windows():
    x, w = torch.randn(1, 4, 8, 8), torch.randn(4, 1, 3, 3)
    x[0, 1, 2, 3], x[0, 2, 7, 7], x[0, 3, 0, 0] = torch.nan, torch.inf, -torch.inf
    assert_same(ours(x, w), F.conv2d(x, w, padding=1, groups=4), 1e-6)


def test_what_is_left_to_aten():
    x, w = torch.randn(1, 6, 8, 8), torch.randn(6, 1, 3, 3)

    def why(x: Tensor = x, w: Tensor = w, b: Tensor | None = None, **more) -> str | None:
        groups = more.get("groups", x.size(1))
        geometry = {"stride": 1, "padding": 1, "dilation": 1, **more, "groups": groups}
        assert_same(ours(x, w, b, **geometry), F.conv2d(x, w, b, **geometry), 1e-6)
        return why_aten(lambda: ours(x, w, b, **geometry))

    assert why() is None
    assert why(x.double(), w.double()) == "an input is no plain CPU tensor of float32"
    assert why(b=torch.randn(6, requires_grad=True)) == "an input requires a gradient"
    assert why(w=torch.randn(12, 1, 3, 3)) == "it is not depthwise"
    assert why(w=torch.randn(6, 6, 1, 1), groups=1, stride=2) == "it is not depthwise"
    assert why(w=torch.randn(6, 6, 3, 3), groups=1) == "it is not depthwise"
    assert why(dilation=2) == "its windows have gaps, or its image is cut"
    assert why(x[:0]) == "an input is empty"
    with pytest.raises(RuntimeError, match="expected stride to be a single integer"):  # aten's words
        ours(x, w[..., 0])
    last = torch.randn(6, 6, 3, 3).to(memory_format=torch.channels_last)
    assert why(w=last, groups=1) == "its weight is channels-last"
    assert why(torch.randn(1, 6, 200, 200)) == "its image is large"
    line, taps = torch.randn(1, 6, 8), torch.randn(6, 1, 3)
    y = torch.ops.ipex.unpacked_convolution(line, taps, None, [1], [1], [1], 6, True)
    assert_same(y, F.conv1d(line, taps, padding=1, groups=6), 1e-6)
    with torch.autocast("cpu"):
        assert why_aten(lambda: ours(x, w)) == "autocast is on"
        assert_same(ours(x, w), F.conv2d(x, w, padding=1, groups=6))


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_meet_the_padding_as_in_aten(odd):
    x, w = torch.randn(1, 6, 5, 5), torch.randn(6, 1, 3, 3)
    w[2, 0, 0, 0] = odd
    assert why_aten(lambda: ours(x, w)) == "its weight has NaN or infinity"
    assert_same(ours(x, w), F.conv2d(x, w, padding=1, groups=6))


def test_errors_are_atens():
    x, w = torch.randn(1, 6, 4, 4), torch.randn(6, 1, 9, 9)
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        ours(x, w)
    with pytest.raises(RuntimeError):
        ours(x, torch.randn(5, 1, 3, 3))


def test_threads_give_the_same():
    x, w = torch.randn(2, 40, 20, 20), torch.randn(40, 1, 5, 5)
    with own_thread_count():
        torch.set_num_threads(1)
        alone = ours(x, w)
        torch.set_num_threads(5)
        assert torch.equal(ours(x, w), alone)


def test_gradients():
    x, w = torch.randn(1, 6, 8, 8, requires_grad=True), torch.randn(6, 1, 3, 3)
    ours(x, w).sum().backward()
    mine, x.grad = x.grad, None
    F.conv2d(x, w, padding=1, groups=6).sum().backward()
    assert_same(mine, x.grad)
