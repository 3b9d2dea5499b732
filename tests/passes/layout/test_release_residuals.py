"""keep_channels_last adds residuals from outside after a convolution that gives fewer channels than it reads."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_round_trip, check_against_eager, kinds, packed_post_ops

RELEASED = ["first", "second", "less", "less, first"]


class Block(nn.Module):
    """Channels are widened and narrowed again; what comes in is added, or stands in another place."""

    def __init__(self, kind: str, width: int = 32) -> None:
        super().__init__()
        self.kind = kind
        self.widen, self.narrow = nn.Conv2d(8, width, 1), nn.Conv2d(width, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        image = torch.sin(x)
        y = self.narrow(F.gelu(self.widen(image)))
        if self.kind == "second":
            return y + image
        if self.kind == "less":
            return y - image
        if self.kind == "less, first":
            return image - y
        if self.kind == "and an operand":
            return image + y * x
        if self.kind == "unseen":
            return (image + y).mean((2, 3)) * 2
        return image + y


def images() -> list[Tensor]:
    x = torch.randn(2, 8, 6, 5)
    return [
        x,
        x.contiguous(memory_format=torch.channels_last),
        x.transpose(2, 3),
        torch.randn(2, 8, 6, 10)[..., ::2],
        x[:1],
        x[0],
        torch.randn(30, 8).T.view(1, 8, 6, 5),
        torch.randn(2, 8, 1, 1),
    ]


@pytest.mark.parametrize("kind", [*RELEASED, "and an operand", "unseen"])
def test_matches_eager(tmp_path, kind):
    first, *others = images()
    if kind == "unseen":
        others = [x for x in others if x.dim() == 4]
    optimized = check_against_eager(Block(kind), first, also=tuple(others))
    assert_round_trip(optimized, tmp_path, first)


@pytest.mark.parametrize("kind", RELEASED)
def test_only_the_result_is_converted(kind):
    optimized = check_against_eager(Block(kind), images()[0])
    assert packed_post_ops(optimized) == [["gelu"], []]
    assert kinds(optimized)["aten::sub" if "less" in kind else "aten::add"] == 1
    assert kinds(optimized)["ipex::to_channels_last"] == 1
    assert kinds(optimized)["ipex::restore_layout"] == 1


@pytest.mark.parametrize("kind", ["and an operand", "unseen"])
def test_other_residuals_stay(kind):
    optimized = check_against_eager(Block(kind), images()[0])
    assert kinds(optimized)["aten::add"] == 0
    assert len(packed_post_ops(optimized)[1]) > 0


def test_declines_more_channels_than_it_reads():
    optimized = check_against_eager(Block("first", width=4), images()[0])
    assert packed_post_ops(optimized) == [["gelu"], ["radd"]]


class LinearOfRows(nn.Module):
    """A linear of the rows of an image that a convolution reads, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.linear = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        image = self.first(x)
        return self.linear(image) + torch.sin(x), self.second(image)


def test_a_linear_keeps_its_residual():
    optimized = check_against_eager(LinearOfRows(), images()[0])
    assert ["add"] in packed_post_ops(optimized)


def test_is_part_of_keep_channels_last():
    module = torch.jit.trace(Block("first").eval(), images()[0])
    optimized = ipex.jit_optimize(module, disable=["keep_channels_last"])
    assert packed_post_ops(optimized) == [["gelu"], ["radd"]]


class Broadcast(nn.Module):
    """A convolution that gives one column, or one channel, plus a larger operand of other strides."""

    def __init__(self, layer: nn.Module, order: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.order = layer, order

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.layer(x) + y.permute(self.order)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
@pytest.mark.parametrize("name", ["column", "channel", "batch"])
def test_an_operand_that_is_larger_decides_the_strides(name, order):
    layer = {
        "column": nn.Conv2d(6, 6, 3, padding=(1, 0)),
        "channel": nn.Conv2d(6, 1, 3, padding=1),
        "batch": nn.Conv2d(6, 6, 3, padding=1),
    }[name]
    x = torch.randn(1 if name == "batch" else 2, 6, 5, 3)
    sizes = (2, 6, 5, 3)
    y = torch.randn([sizes[order.index(i)] for i in range(4)])
    check_against_eager(Broadcast(layer, order), x, y, also=((x.contiguous(memory_format=torch.channels_last), y),))
