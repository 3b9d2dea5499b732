"""Which algorithm computes a convolution, and why not those before it in the list: a profiler shows both."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from support import assert_same, kernel_of, optimized_for

LIST = ["trimmed_taps", "pixel_product", "sequence_product", "depthwise", "few_channels", "winograd", "rounded_windows"]


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def choice(layer: nn.Module, *sizes: int) -> tuple[str, dict[str, str]]:
    x = torch.randn(sizes)
    optimized = optimized_for(layer, x)
    assert_same(optimized(x), layer(x))
    return kernel_of(lambda: optimized(x))


@pytest.mark.parametrize(
    ("layer", "sizes", "kernel"),
    [
        (nn.Conv2d(16, 16, 3, padding=24, dilation=24), (1, 16, 8, 8), "trimmed_taps"),
        (nn.Conv2d(32, 48, 1), (1, 32, 14, 14), "pixel_product"),
        (nn.Conv1d(32, 48, 1), (1, 32, 14), "pixel_product"),
        (nn.Conv2d(128, 128, 3, padding=1, groups=128), (1, 128, 14, 14), "depthwise"),
        (nn.Conv2d(3, 16, 3), (1, 3, 14, 14), "few_channels"),
        (nn.Conv2d(64, 64, 3, padding=1), (1, 64, 16, 16), "winograd"),
        (nn.Conv2d(64, 64, 3, stride=2), (1, 64, 16, 16), "oneDNN"),
        (nn.ConvTranspose2d(8, 8, 2), (1, 8, 6, 6), "oneDNN"),
        (nn.Conv3d(8, 8, 2), (1, 8, 6, 6, 6), "oneDNN"),
    ],
)
def test_the_first_that_takes_it(layer, sizes, kernel):
    found, rejected = choice(layer, *sizes)
    assert found == kernel
    assert list(rejected) == [*LIST, "oneDNN"][: [*LIST, "oneDNN"].index(kernel)]
    assert all(rejected.values())


def test_the_reasons():
    _, rejected = choice(nn.Conv2d(64, 64, 3, stride=2), 1, 64, 16, 16)
    assert rejected == {
        "trimmed_taps": "oneDNN's kernels are right without it",
        "pixel_product": "its windows are larger than a pixel",
        "sequence_product": "its windows are no runs of memory",
        "depthwise": "it is not depthwise",
        "few_channels": "it has many channels, or large windows",
        "winograd": "its windows are not 3x3 and one pixel apart",
        "rounded_windows": "it may not round",
    }


@pytest.mark.parametrize(
    ("layer", "sizes", "kernel", "reason"),
    [
        (nn.ConvTranspose2d(8, 8, 2), (1, 8, 6, 6), "winograd", "it is transposed"),
        (nn.Conv3d(8, 8, 2), (1, 8, 6, 6, 6), "pixel_product", "it is of volumes"),
        (nn.Conv2d(8, 8, 1, groups=2), (1, 8, 6, 6), "pixel_product", "it has groups"),
        (nn.Conv2d(8, 8, 1), (1, 8, 40, 40), "pixel_product", "it has few channels, or many pixels"),
        (nn.Conv2d(8, 8, 3, groups=8), (1, 8, 9, 9), "depthwise", "it has few products for what it reads"),
        (nn.Conv2d(8, 8, 5, stride=3, groups=8), (1, 8, 9, 9), "depthwise", "its windows are too far apart"),
        (nn.Conv2d(16, 16, 3), (1, 16, 20, 20), "winograd", "it has few channels"),
        (nn.Conv2d(64, 64, 3), (1, 64, 5, 5), "winograd", "its image is small, beside its weight or its dilation"),
    ],
)
def test_a_reason(layer, sizes, kernel, reason):
    assert choice(layer, *sizes)[1][kernel] == reason


def test_an_algorithm_that_gives_up():
    """The sums of Winograd's are not finite: oneDNN computes the call again."""
    layer, x = nn.Conv2d(64, 64, 3, padding=1), torch.randn(1, 64, 16, 16)
    x[0, 0, 0, 0] = float("inf")
    optimized = optimized_for(layer, x)
    kernel, rejected = kernel_of(lambda: optimized(x), note=-1)
    assert (kernel, rejected["winograd"]) == ("oneDNN", "it gave up")
    assert_same(optimized(x), layer(x))


def test_a_piece_of_channels_is_another_problem():
    class Piece(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(64, 64, 1)
            self.second = nn.Conv2d(32, 32, 3, padding=1, groups=32)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x)[:, 16:48])

    x = torch.randn(1, 64, 14, 14)
    optimized = optimized_for(Piece(), x)
    optimized(x)
    assert kernel_of(lambda: optimized(x), note=-1)[0] == "depthwise"
    assert choice(nn.Conv2d(32, 32, 3, padding=1, groups=32), 1, 32, 14, 14)[0] == "oneDNN"
