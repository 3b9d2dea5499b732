import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ir import PACKED
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

WRITE = "%n : Tensor = aten::neg_(%x)"
FROM_PADDED = tuple(line.replace("(%x, %p, %operands", "(%q, %p, %operands") for line in PACKED)
MORE = (
    "%widths : int[] = prim::Constant[value=[1, 2, 3, 4]]()",
    "%negative : int[] = prim::Constant[value=[-1, 0]]()",
    "%batch : int[] = prim::Constant[value=[0, 0, 0, 0, 1, 1]]()",
    "%none0 : NoneType = prim::Constant()",
    "%one0 : int = prim::Constant[value=1]()",
    "%zero0 : float = prim::Constant[value=0.]()",
    '%mode : str = prim::Constant[value="constant"]()',
    '%reflect : str = prim::Constant[value="reflect"]()',
)


def padded(call: str, *between: str, after: tuple[str, ...] = (), returns: str = "%y") -> str:
    inputs = "%x : Tensor, %v : int[]"
    return graph_ir(inputs, *MORE, f"%q : Tensor = {call}", *between, *FROM_PADDED, *after, returns=returns)


@pytest.mark.parametrize(
    "call", ["aten::constant_pad_nd(%x, %widths, %zero0)", "aten::pad(%x, %widths, %mode, %none0)"]
)
def test_fires(call):
    graph = assert_rewrites("fold_padding", padded(call)).graph
    assert "pad(" not in graph
    assert "value=[3, 1, 4, 2]" in graph


@pytest.mark.parametrize(
    ("ir", "reason"),
    [
        (padded("aten::constant_pad_nd(%x, %widths, %one0)"), "does not pad with zeros"),
        (padded("aten::pad(%x, %widths, %reflect, %none0)"), "does not pad with zeros"),
        (padded("aten::constant_pad_nd(%x, %negative, %zero0)"), "cuts off"),
        (padded("aten::constant_pad_nd(%x, %batch, %zero0)"), "more than the image"),
        (padded("aten::constant_pad_nd(%x, %v, %zero0)"), "its widths are not constants"),
        (padded("aten::constant_pad_nd(%x, %widths, %zero0)", returns="%q, %y"), "another reader"),
        (padded("aten::constant_pad_nd(%x, %widths, %zero0)", WRITE), "is overwritten"),
        (
            padded("aten::constant_pad_nd(%x, %widths, %zero0)", after=(WRITE,)),
            "is overwritten",
        ),
    ],
)
def test_declines(ir, reason):
    assert_unchanged("fold_padding", ir, reason=reason)


class Padded(nn.Module):
    """A convolution on an image that was padded by hand."""

    def __init__(self, conv: nn.Module, widths: list[int]) -> None:
        super().__init__()
        self.conv = conv
        self.widths = widths

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(F.pad(x, self.widths)))


@pytest.mark.parametrize(
    ("conv", "widths", "shape"),
    [
        (nn.Conv2d(3, 8, 3, stride=2), [0, 1, 0, 1], (2, 3, 9, 8)),
        (nn.Conv2d(3, 8, 3, padding=1), [1, 1, 2, 2], (2, 3, 9, 8)),
        (nn.Conv2d(3, 8, 3), [2, 0], (2, 3, 9, 8)),
        (nn.Conv1d(3, 8, 3), [2, 0], (2, 3, 9)),
        (nn.Conv3d(3, 8, 3), [0, 1, 1, 0, 2, 2], (2, 3, 4, 5, 6)),
    ],
)
def test_matches_eager(tmp_path, conv, widths, shape):
    x = torch.randn(shape)
    also = (x[0], x.transpose(-1, -2).contiguous().transpose(-1, -2))
    optimized = check_against_eager(Padded(conv, widths), x, also=also)
    assert not [kind for kind in kinds(optimized) if "pad" in kind]
    assert_round_trip(optimized, tmp_path, x)


def test_channels_last_matches_eager():
    x = torch.randn(2, 3, 9, 8).to(memory_format=torch.channels_last)
    check_against_eager(Padded(nn.Conv2d(3, 8, 3), [0, 1, 0, 1]), x, also=(x[:, :, :, :2], x[:, :, :3, :3]))
