"""Convolutions of each channel by itself run on a kernel of our own, which makes no primitive, where it is faster."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ipex
from own_kernel import check, optimized
from support import assert_same, own_thread_count


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def image(images: int = 2, channels: int = 96, height: int = 9, width: int = 17) -> Tensor:
    return torch.randn(images, channels, height, width).to(memory_format=torch.channels_last)


def depthwise(
    channels: int = 96, window: int | tuple[int, int] = 3, stride: int | tuple[int, int] = 1, **more: object
) -> nn.Conv2d:
    padding = tuple(side // 2 for side in (window if isinstance(window, tuple) else (window, window)))
    return nn.Conv2d(channels, channels, window, stride, **{"padding": padding, "groups": channels, **more})


@pytest.mark.parametrize("stride", [1, 2, (2, 1), (3, 1), (1, 2)])
@pytest.mark.parametrize("window", [3, 4, 5, 7, 8, 9, 13, (4, 3), (2, 5), (7, 5), (1, 11), (11, 1), (21, 1), (5, 31)])
def test_windows(window, stride):
    check(depthwise(window=window, stride=stride), image(width=31))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("columns", range(3, 31))
def test_pieces_of_windows(columns, stride):
    """Wide windows are cut into pieces of at most seven columns."""
    check(depthwise(8, (4, columns), stride), image(1, 8, 5, 40))


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 13, 14, 15, 16, 28, 29, 57])
@pytest.mark.parametrize(("window", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2), (7, 1), (9, 2), ((11, 1), 1)])
def test_widths(width, window, stride):
    check(depthwise(window=window, stride=stride), image(height=8, width=width + 3))


@pytest.mark.parametrize("dilation", [2, 3, (1, 2), (4, 1), (2, 5)])
@pytest.mark.parametrize("stride", [1, 2, (1, 2), (2, 1)])
@pytest.mark.parametrize("window", [5, 7, (5, 6), (1, 25), (25, 1)])
def test_windows_with_gaps(window, stride, dilation):
    reach = (window, window) if isinstance(window, int) else window
    across = (dilation, dilation) if isinstance(dilation, int) else dilation
    padding = tuple(gap * (side - 1) // 2 for side, gap in zip(reach, across, strict=True))
    x = image(1, 20, 23, 26)
    check(depthwise(20, window, stride, padding=padding, dilation=dilation), x)
    check(nn.Sequential(depthwise(20, window, stride, padding=padding, dilation=dilation), nn.SiLU()), x)


def test_few_products_with_gaps():
    """oneDNN has no fast kernel where the padding is wide."""
    check(depthwise(dilation=9, padding=9), image(width=31))
    check(depthwise(dilation=2, padding=2), image(width=31), is_own=False)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (3, 40), (40, 3)])
@pytest.mark.parametrize("window", [(13, 13), (1, 13), (13, 1), (8, 4)])
def test_images_smaller_than_windows(window, shape):
    check(depthwise(24, window), image(2, 24, *shape))


@pytest.mark.parametrize("channels", [2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 40, 72, 130])
def test_channels_that_do_not_fill_registers(channels):
    check(depthwise(channels, 5, bias=channels % 2 == 0), image(channels=channels))


@pytest.mark.parametrize("window", [5, (11, 1), 9])
@pytest.mark.parametrize("padding", [0, 1, (0, 1), (4, 0)])
def test_padding(padding, window):
    check(depthwise(window=window, padding=padding), image(height=12))


@pytest.mark.parametrize(
    "activation", [nn.ReLU, nn.ReLU6, nn.SiLU, nn.Hardswish, nn.GELU, nn.Sigmoid, nn.LeakyReLU, nn.Tanh]
)
@pytest.mark.parametrize("channels", [96, 100])
def test_activations(activation, channels):
    check(nn.Sequential(depthwise(channels), activation()), image(channels=channels))


class Residual(nn.Module):
    """Adds what it read; scales what it gives."""

    def __init__(self, channels: int, window: int | tuple[int, int] = 5, **more: object) -> None:
        super().__init__()
        self.layer = depthwise(channels, window, **more)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x) + x) + x


@pytest.mark.parametrize("channels", [16, 21])
@pytest.mark.parametrize("images", [1, 3])
def test_operands(channels, images):
    # A strip has some rows of the image only.
    for height, width in ((9, 17), (150, 70)):
        x = image(images, channels, height, width)
        for window in (5, 9, (11, 1), (1, 11)):
            check(Residual(channels, window), x)
        check(Residual(channels, padding=4, dilation=2), x)


@pytest.mark.parametrize("window", [3, 7, 9, (1, 11), (11, 1)])
def test_nan_and_infinity(window):
    x = image()
    x[0, 3, 5, 5], x[0, 4, 0, 0], x[1, 5, 8, 16] = float("nan"), float("inf"), -float("inf")
    for activation in (nn.ReLU, nn.ReLU6, nn.Identity):
        check(nn.Sequential(depthwise(window=window), activation()), x)


@pytest.mark.parametrize("window", [5, 9, (1, 11), (11, 1)])
def test_nan_and_infinity_in_the_weight(window):
    model, x = depthwise(window=window), image(height=13)
    with torch.no_grad():
        model.weight[3, 0, 0, 0], model.weight[4, 0, -1, -1], model.bias[5] = float("nan"), float("inf"), -float("inf")
    check(model, x)


def test_other_layouts():
    model = depthwise()
    own, wide = optimized(model, image()), image(width=34)
    plain = torch.randn(2, 96, 9, 17)
    for x in (plain, plain[0], wide[..., ::2], plain.transpose(2, 3), plain[:1].expand(2, -1, -1, -1), plain[:0]):
        assert_same(own(x), model(x))


def test_one_dimension():
    x = torch.randn(2, 12, 40)
    check(nn.Conv1d(12, 12, 7, padding=3, groups=12), x, is_own=False)  # seven products a number


@pytest.mark.parametrize(("channels", "height"), [(200, 7), (40, 30), (8, 3), (512, 1)])
def test_threads_agree(channels, height):
    """With few rows threads share the channels."""
    model, x = depthwise(channels, 5), image(1, channels, height, 60)
    own = optimized(model, x)
    expected = own(x)
    assert_same(expected, model(x))
    with own_thread_count():
        for threads in (1, 2, 3, 5, 16):
            torch.set_num_threads(threads)
            assert_same(own(x), expected, tolerance=0)


@pytest.mark.parametrize(("window", "stride"), [(2, 1), ((1, 7), 1), ((7, 1), 1), (3, 3), (7, 4)])
def test_few_products_and_wide_strides_stay_with_onednn(window, stride):
    check(depthwise(window=window, stride=stride), image(), is_own=False)


def test_what_else_stays_with_onednn():
    check(depthwise(95), image(channels=95), is_own=False)  # few channels in narrow windows
    check(nn.Conv2d(96, 192, 3, groups=96), image(), is_own=False)
    check(nn.Conv2d(96, 96, 3, groups=48), image(), is_own=False)


def test_an_activation_that_no_kernel_has_comes_after_ours():
    check(nn.Sequential(depthwise(), nn.Softplus(threshold=100)), image(), is_own=True)


def test_saved_and_loaded(tmp_path):
    x = image()
    own = optimized(depthwise(), x)
    own.save(tmp_path / "model.pt")
    assert_same(ipex.load(tmp_path / "model.pt")(x), own(x), tolerance=0)
