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
    assert why(w=torch.randn(6, 6, 3, 3), groups=1) == "it is not depthwise"
    assert why(dilation=2) == "its windows have gaps, or its image is cut"
    assert why(x[:0]) == "an input is empty"
    assert why(x.to(memory_format=torch.channels_last)) == "an input is channels-last"
    assert why(w=w.to(memory_format=torch.channels_last)) in (None, "an input is channels-last")
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
