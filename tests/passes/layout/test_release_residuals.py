"""keep_channels_last adds residuals from outside after a convolution that gives fewer channels than it reads."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_round_trip, check_against_eager, kinds, packed_post_ops


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


@pytest.mark.parametrize("kind", ["first", "second", "and an operand", "unseen"])
def test_matches_eager(tmp_path, kind):
    first, *others = images()
    if kind == "unseen":
        others = [x for x in others if x.dim() == 4]
    optimized = check_against_eager(Block(kind), first, also=tuple(others))
    assert_round_trip(optimized, tmp_path, first)


def test_only_the_result_is_converted():
    optimized = check_against_eager(Block("first"), images()[0])
    assert packed_post_ops(optimized) == [["gelu"], []]
    assert kinds(optimized)["aten::add"] == 1
    assert kinds(optimized)["ipex::to_channels_last"] == 1
    assert kinds(optimized)["ipex::restore_layout"] == 1


@pytest.mark.parametrize("kind", ["second", "and an operand", "unseen"])
def test_other_residuals_stay(kind):
    optimized = check_against_eager(Block(kind), images()[0])
    assert kinds(optimized)["aten::add"] == 0
    assert len(packed_post_ops(optimized)[1]) > 0


def test_declines_more_channels_than_it_reads():
    optimized = check_against_eager(Block("first", width=4), images()[0])
    assert packed_post_ops(optimized) == [["gelu"], ["radd"]]


def test_is_part_of_keep_channels_last():
    module = torch.jit.trace(Block("first").eval(), images()[0])
    optimized = ipex.jit_optimize(module, disable=["keep_channels_last"])
    assert packed_post_ops(optimized) == [["gelu"], ["radd"]]
