"""Our own kernels read a piece of an image's channels where it lies, and nothing of what lies beside it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_same

COPIES = {"ipex::copy_pieces", "ipex::copy_transposed", "aten::copy_", "aten::contiguous", "aten::clone"}

LAYERS = {
    "depthwise": lambda c: nn.Conv2d(c, c, 5, padding=2, groups=c),
    "depthwise, with strides": lambda c: nn.Conv2d(c, c, (5, 7), 2, padding=(2, 3), groups=c),
    "pixels": lambda c: nn.Conv2d(c, 40, 1),
    "winograd": lambda c: nn.Conv2d(c, 48, 3, padding=1),
    "winograd of groups": lambda c: nn.Conv2d(c, 4 * c, 3, padding=1, groups=2),
}


class OfPieces(nn.Module):
    """One layer for each piece of the channels of an image that lies in a stretch: nobody makes the pieces dense."""

    def __init__(self, make, *widths: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(sum(widths), sum(widths), 1, groups=sum(widths))
        self.widths, self.layers = list(widths), nn.ModuleList([make(width) for width in widths])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(layer(piece) for layer, piece in zip(self.layers, self.stem(x).split(self.widths, 1)))


def image(images: int, channels: int, height: int, width: int) -> Tensor:
    return torch.randn(images, channels, height, width).to(memory_format=torch.channels_last)


def optimized(model: nn.Module, x: Tensor) -> torch.jit.ScriptModule:
    return ipex.jit_optimize(torch.jit.trace(model.eval(), x, check_trace=False))


def copies_in(model: torch.jit.ScriptModule, x: Tensor) -> set[str]:
    model(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        model(x)
    return COPIES & {event.name for event in profile.events()}


@pytest.mark.parametrize("sizes", [(1, 28, 28), (3, 13, 9), (2, 6, 40), (2, 40, 5)])
@pytest.mark.parametrize("kind", LAYERS)
@torch.no_grad()
def test_read_where_they_lie(kind, sizes):
    model = OfPieces(LAYERS[kind], 48, 34, 62)
    x = image(sizes[0], 144, *sizes[1:])
    own = optimized(model, x)
    before = x.clone()
    assert_same(own(x), model(x))
    assert torch.equal(x, before)
    assert not copies_in(own, x)


@pytest.mark.parametrize("kind", LAYERS)
@torch.no_grad()
def test_neighbours_are_not_read(kind):
    """A NaN beside a piece stays there."""
    model = OfPieces(LAYERS[kind], 48, 36, 60)
    x = image(2, 144, 14, 14)
    x[:, :48] = torch.nan
    x[:, 84:] = torch.inf
    own = optimized(model, image(2, 144, 14, 14))
    results = own(x)
    assert results[1].isfinite().all()
    assert_same(results[1], model(x)[1])


@pytest.mark.parametrize("width", [1, 5])
@torch.no_grad()
def test_what_lies_otherwise_is_copied(width):
    """Columns and rows of an image, planes, images of one column, and one image for all."""
    layer = nn.Conv2d(48, 48, 5, padding=2, groups=48)
    own = optimized(layer, image(2, 48, 6, width))
    whole = image(2, 96, 12, 2 * width)
    others = [
        whole[:, :48, ::2, :width],
        whole[:, 48:, 3:9, width:],
        whole.contiguous()[:, 10:58, :6, :width],
        whole[:, ::2, :6, :width],
        image(1, 96, 6, width)[:, :48].expand(2, -1, -1, -1),
        image(2, 48, 6, 1).expand(-1, -1, -1, width),
    ]
    for x in others:
        assert_same(own(x), layer(x))
