"""Convolutions of few input channels run on a kernel of our own, which reads any layout and makes no primitive."""

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


def image(images: int = 2, channels: int = 3, height: int = 21, width: int = 35) -> Tensor:
    return torch.randn(images, channels, height, width)


def layer(channels: int = 3, results: int = 16, window: int | tuple[int, int] = 3, **more: object) -> nn.Conv2d:
    padding = tuple(side // 2 for side in (window if isinstance(window, tuple) else (window, window)))
    return nn.Conv2d(channels, results, window, **{"stride": 2, "padding": padding, **more})


@pytest.mark.parametrize("stride", [1, 2, 3, 4, (1, 2), (4, 1)])
@pytest.mark.parametrize("window", [2, 3, 4, 5, (1, 3), (7, 1), (3, 7)])
def test_windows(window, stride):
    check(layer(window=window, stride=stride), image())


@pytest.mark.parametrize("window", [6, 7, (7, 5)])
def test_larger_windows_of_one_channel(window):
    check(layer(1, window=window), image(channels=1))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("results", [8, 9, 15, 16, 17, 24, 31, 33, 40, 48, 64, 70, 300])
def test_channels(channels, results):
    check(nn.Sequential(layer(channels, results, bias=results % 2 == 0), nn.SiLU()), image(channels=channels))


@pytest.mark.parametrize("width", [1, 2, 3, 6, 13, 28, 29, 30, 57, 59, 113, 227])
@pytest.mark.parametrize("stride", [1, 2])
def test_widths(width, stride):
    for results in (16, 32):
        check(layer(results=results, stride=stride), image(1, width=width + 2))
        check(layer(results=results, stride=stride), image(1, height=width + 2, width=9))


@pytest.mark.parametrize("padding", [0, 1, (0, 2), (3, 1), (4, 4)])
@pytest.mark.parametrize("dilation", [1, 2, (1, 3)])
def test_padding_and_gaps(padding, dilation):
    check(layer(padding=padding, dilation=dilation), image(height=20))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU, nn.GELU, nn.Sigmoid, nn.LeakyReLU])
@pytest.mark.parametrize("results", [16, 21, 40])
def test_activations(activation, results):
    check(nn.Sequential(layer(results=results), activation()), image())


class Residual(nn.Module):
    def __init__(self, results: int) -> None:
        super().__init__()
        self.first, self.second = layer(results=results), layer(results=results, stride=(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.first(x) + self.second(x)) * 0.5


@pytest.mark.parametrize("results", [16, 21, 64])
@pytest.mark.parametrize("images", [1, 3])
def test_operands(results, images):
    check(Residual(results), image(images))


def test_nan_and_infinity():
    x = image()
    x[0, 0, 0, 0], x[0, 1, 10, 34], x[1, 2, 20, 17] = float("nan"), float("inf"), -float("inf")
    for activation in (nn.ReLU, nn.ReLU6, nn.Identity):
        check(nn.Sequential(layer(padding=2), activation()), x)


def test_nan_and_infinity_in_the_weight():
    """Padding is not multiplied."""
    model = layer()
    model.weight[3, 0, 0, 0], model.weight[4, 0, -1, -1], model.bias[5] = float("nan"), float("inf"), -float("inf")
    check(model, image())


def test_other_layouts():
    model, x = layer(), image(height=35)
    own, wide = optimized(model, x), image(height=35, width=70)
    last = x.to(memory_format=torch.channels_last)
    others = [last, x[0], wide[..., ::2], x.transpose(2, 3), x[:0]]
    others += [x[:1].expand(2, -1, -1, -1), x[:, :1].expand(-1, 3, -1, -1)]
    for other in others:
        y = own(other)
        assert_same(y, model(other))
        assert y.stride() == model(other).stride()


def test_an_activation_that_no_kernel_has_comes_after_ours():
    check(nn.Sequential(layer(), nn.Softplus(threshold=100)), image(), is_own=True)


def test_threads_agree():
    model, x = layer(results=40), image(3, height=90, width=90)
    own = optimized(model, x)
    expected = own(x)
    assert_same(expected, model(x))
    with own_thread_count():
        for threads in (1, 2, 3, 5, 16):
            torch.set_num_threads(threads)
            assert_same(own(x), expected, tolerance=0)


@pytest.mark.parametrize(
    "model",
    [
        layer(window=7),
        layer(results=4),
        layer(5),
        layer(1, window=(8, 1)),
        layer(1, window=(1, 8)),
        layer(stride=(5, 1)),
        layer(stride=(1, 5)),
        layer(results=64, stride=1),
    ],
)
def test_what_stays_with_onednn(model):
    check(model, image(channels=model.in_channels), is_own=False)


def test_saved_and_loaded(tmp_path):
    x = image()
    own = optimized(layer(), x)
    own.save(tmp_path / "model.pt")
    assert_same(ipex.load(tmp_path / "model.pt")(x), own(x), tolerance=0)
