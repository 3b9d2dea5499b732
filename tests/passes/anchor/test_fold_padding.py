import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ipex
from ir import PACKED
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_same,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    kinds,
    ports,
    same_padding,
)

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


def test_declines_a_convolution_in_a_branch():
    branch = ("%b : bool = aten::is_floating_point(%x)", "%r : Tensor = prim::If(%b)", "  block0():")
    lines = (*branch, *(f"    {line}" for line in FROM_PADDED), "    -> (%y)", "  block1():", "    -> (%x)")
    pad = "%q : Tensor = aten::constant_pad_nd(%x, %widths, %zero0)"
    ir = graph_ir("%x : Tensor", *MORE, pad, *lines, returns="%r")
    assert_unchanged("fold_padding", ir, reason="an if or a loop stands in between")


def test_leaves_an_image_that_nobody_reads():
    ir = graph_ir("%x : Tensor", *MORE, "%q : Tensor = aten::constant_pad_nd(%x, %widths, %zero0)", returns="%x")
    assert_unchanged("fold_padding", ir, reason=None)


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


COMPUTED = "fold_computed_padding"


def test_computed_padding_fires():
    result = assert_rewrites(COMPUTED, padded("aten::constant_pad_nd(%x, %v, %zero0)"))
    assert re.search(r"ipex::convolution_run\(%x, .*, %v, %\d+\)", result.graph)
    assert result.count("aten::constant_pad_nd") == 0


def test_computed_padding_of_what_is_no_layer_stays():
    pad = "%y : Tensor = aten::constant_pad_nd(%x, %v, %zero)"
    ir = graph_ir("%x : Tensor, %v : int[], %zero : int", pad, "%z : Tensor = aten::relu(%y)", returns="%z")
    assert_unchanged(COMPUTED, ir, reason=None)


@pytest.mark.parametrize(
    ("ir", "reason"),
    [
        (padded("aten::constant_pad_nd(%x, %v, %one0)"), "does not pad with zeros"),
        (padded("aten::pad(%x, %v, %reflect, %none0)"), "does not pad with zeros"),
        (padded("aten::constant_pad_nd(%x, %v, %zero0)", returns="%q, %y"), "another reader"),
        (padded("aten::constant_pad_nd(%x, %v, %zero0)", WRITE), "is overwritten"),
    ],
)
def test_computed_padding_declines(ir, reason):
    assert_unchanged(COMPUTED, ir, reason=reason)


class Same(nn.Module):
    """TensorFlow's padding, which follows from the size of the image, between two convolutions."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.first = type(conv)(conv.in_channels, conv.in_channels, 1)
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return torch.relu(self.conv(F.pad(x, same_padding(x, self.conv))))


@pytest.mark.parametrize(
    ("conv", "shapes"),
    [
        (nn.Conv2d(3, 8, 3, stride=2), [(2, 3, 9, 8), (1, 3, 16, 16), (2, 3, 5, 12)]),
        (nn.Conv2d(8, 8, 5, stride=2, groups=8), [(2, 8, 9, 8), (1, 8, 20, 23)]),
        (nn.Conv2d(3, 8, 1, stride=2), [(2, 3, 9, 8)]),
        (nn.Conv2d(16, 16, 3, stride=(1, 2), padding=1), [(2, 16, 9, 8)]),
        (nn.Conv1d(3, 8, 4, stride=3), [(2, 3, 9), (2, 3, 10), (1, 3, 11)]),
        (nn.Conv3d(3, 8, 3, stride=2), [(2, 3, 4, 5, 6)]),
    ],
)
def test_computed_padding_matches_eager(tmp_path, conv, shapes):
    first, *others = [torch.randn(shape) for shape in shapes]
    also = (*others, first.transpose(-1, -2).contiguous().transpose(-1, -2), first * torch.inf)
    optimized = check_against_eager(Same(conv), first, also=also)
    assert ports(optimized)["convolution_run widths"] == 1
    assert not [kind for kind in kinds(optimized) if kind.startswith("aten::") and "pad" in kind]
    assert_round_trip(optimized, tmp_path, first)


class Block(nn.Module):
    """A depthwise layer padded as TensorFlow does, and convolutions of single pixels around it."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.project = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
        self.depthwise = nn.Conv2d(8, 8, 3, stride=2, groups=8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.expand(x)
        return self.project(self.depthwise(F.pad(x, same_padding(x, self.depthwise)))).mean((2, 3))


def test_a_layer_that_pads_at_its_call_stays_out_of_a_chain():
    x = torch.randn(2, 3, 9, 8)
    optimized = check_against_eager(Block(), x, also=(torch.randn(1, 3, 12, 11),))
    assert ports(optimized)["convolution_run widths"] == 1


class Given(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.conv = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor, widths: list[int]) -> Tensor:
        return self.conv(F.pad(self.first(x), widths))


class Stem(Given):
    def forward(self, x: Tensor, widths: list[int]) -> Tensor:
        return self.conv(F.pad(x, widths)).mean((2, 3))


def test_a_stem_pads_what_becomes_channels_last():
    model = Stem().eval()
    optimized = ipex.jit_optimize(torch.jit.script(model))
    assert ports(optimized)["convolution_run widths"] == 1
    with torch.no_grad():
        for x in (torch.randn(2, 3, 9, 8), torch.randn(1, 3, 12, 8).to(memory_format=torch.channels_last)):
            for widths in ([1, 2, 0, 3], [0, 1], [-1, 2]):
                assert_same(optimized(x, widths), model(x, widths))


def test_padding_that_a_convolution_has_not_is_put_around_first():
    model = Given().eval()
    optimized = ipex.jit_optimize(torch.jit.script(model))
    assert ports(optimized)["convolution_run widths"] == 1
    x = torch.randn(2, 3, 9, 8)
    with torch.no_grad():
        for widths in ([1, 2, 0, 3], [-1, 0], [0, 0], [], [1, 0, 0, 2, 0, 0], [0, 0, 0, 0, 0, 0, 1, 0], [4, 4, 4, 4]):
            assert_same(optimized(x, widths), model(x, widths))
        for widths in ([1], [1, 1, 1]):
            for module in (model, optimized):
                with pytest.raises(RuntimeError):
                    module(x, widths)


@pytest.mark.parametrize("padding", [0, 1])
def test_an_image_without_pixels_is_taken_where_it_is_padded(tmp_path, padding):
    model = nn.Sequential(nn.ZeroPad2d(1), nn.Conv2d(3, 8, 3, padding=padding))
    empty = torch.randn(2, 3, 0, 4)
    optimized = check_against_eager(model, torch.randn(2, 3, 5, 4), also=(empty,) if padding else ())
    assert kinds(optimized)["aten::constant_pad_nd"] + kinds(optimized)["aten::pad"] == 0
    assert_round_trip(optimized, tmp_path, empty if padding else torch.randn(2, 3, 5, 4))
