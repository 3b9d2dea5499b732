import re

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "separate_arithmetic"
NUMBERS = (
    "%zero : int = prim::Constant[value=0]()",
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
)


def after(*lines: str, returns: str) -> str:
    """A graph in which %y is fresh."""
    return graph_ir("%x : Tensor, %o : Tensor", *NUMBERS, "%y : Tensor = aten::neg(%x)", *lines, returns=returns)


@pytest.mark.parametrize(
    ("write", "own"),
    [
        ("aten::add_(%y, %o, %one)", "ipex::add_like"),
        ("aten::sub_(%y, %o, %one)", "ipex::sub_like"),
        ("aten::mul_(%y, %o)", "ipex::mul_like"),
        ("aten::div_(%y, %o)", "ipex::div_like"),
        ("aten::masked_fill_(%y, %o, %one)", "ipex::masked_fill_like"),
    ],
)
def test_fires_on_fresh_memory(write, own):
    result = assert_rewrites(NAME, after(f"%z : Tensor = {write}", returns="%z"))
    assert result.count(own) == 1


def test_later_readers_of_the_first_operand_read_the_result():
    result = assert_rewrites(
        NAME, after("%z : Tensor = aten::mul_(%y, %o)", "%r : Tensor = aten::neg(%y)", returns="%r")
    )
    (made,) = re.findall(r"(%\w+) : Tensor = ipex::mul_like", result.graph)
    assert f"aten::neg({made})" in result.graph


def test_fires_on_a_piece():
    lines = (
        "%p : Tensor = aten::slice(%y, %zero, %zero, %one, %one)",
        "%z : Tensor = aten::add_(%p, %o, %one)",
        "%r : Tensor = aten::neg(%z)",
    )
    assert assert_rewrites(NAME, after(*lines, returns="%r")).count("ipex::add_like") == 1


SPLIT = (
    "%pieces : Tensor[] = aten::chunk(%y, %two, %zero)",
    "%a : Tensor, %b : Tensor = prim::ListUnpack(%pieces)",
    "%z : Tensor = aten::add_(%a, %o, %one)",
)


def test_other_pieces_of_a_split_do_not_count():
    result = assert_rewrites(NAME, after(*SPLIT, "%r : Tensor = aten::mul(%z, %b)", returns="%r"))
    assert result.count("ipex::add_like") == 1


SEEN = {
    "a graph input": ("%z : Tensor = aten::mul_(%x, %o)",),
    "the whole, of which it is a piece": (
        "%p : Tensor = aten::slice(%y, %zero, %zero, %one, %one)",
        "%m : Tensor = aten::mul_(%p, %o)",
        "%z : Tensor = aten::neg(%y)",
    ),
    "a view made before": (
        "%v : Tensor = aten::select(%y, %zero, %zero)",
        "%m : Tensor = aten::mul_(%y, %o)",
        "%z : Tensor = aten::neg(%v)",
    ),
    "a list made before": (
        "%l : Tensor[] = prim::ListConstruct(%y)",
        "%m : Tensor = aten::mul_(%y, %o)",
        "%z : Tensor = aten::cat(%l, %zero)",
    ),
    "what was split": (*SPLIT[:2], "%m : Tensor = aten::mul_(%a, %o)", "%z : Tensor = aten::neg(%y)"),
    "the write, in another operand": (
        "%v : Tensor = aten::select(%y, %zero, %zero)",
        "%z : Tensor = aten::mul_(%y, %v)",
    ),
    "another cut of the same": (
        "%p : Tensor = aten::slice(%y, %zero, %zero, %two, %one)",
        "%q : Tensor = aten::slice(%y, %zero, %one, %two, %one)",
        "%m : Tensor = aten::mul_(%p, %o)",
        "%z : Tensor = aten::neg(%q)",
    ),
}


@pytest.mark.parametrize("lines", SEEN.values(), ids=SEEN.keys())
def test_declines_where_others_see_the_write(lines):
    assert_unchanged(NAME, after(*lines, returns="%z"), reason="may be read elsewhere")


@pytest.mark.parametrize("reader", ["", "%r : Tensor = aten::transpose(%z, %zero, %one)"])
def test_declines_a_piece_whose_strides_show(reader):
    lines = ("%p : Tensor = aten::slice(%y, %one, %zero, %one, %one)", "%z : Tensor = aten::mul_(%p, %o)")
    ir = after(*lines, *([reader] if reader else []), returns="%r" if reader else "%z")
    assert_unchanged(NAME, ir, reason="strides")


class Ghost(nn.Module):
    """A convolution whose result is joined with that of another, cut, and added to in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(6, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        joined = torch.cat([y, self.second(y)], 1)[:, :6]
        joined += y.mean(1, keepdim=True)
        return self.last(joined)


def test_a_stretch_goes_on_through_a_piece_that_is_overwritten(tmp_path):
    x = torch.randn(2, 3, 8, 8)
    optimized = check_against_eager(Ghost(), x)
    assert kinds(optimized)["ipex::restore_layout"] == 1
    assert kinds(optimized)["aten::add_"] == 0
    assert_round_trip(optimized, tmp_path, x)


class Sum(nn.Module):
    """Branches that are added in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x) + 0.0
        y += self.conv(x)
        return self.conv(y)


@pytest.mark.parametrize("shape", [(2, 4, 6, 6), (1, 4, 1, 6)])
def test_matches_eager(shape):
    x = torch.randn(shape)
    check_against_eager(Sum(), x, also=(x.contiguous(memory_format=torch.channels_last),))


def test_can_be_switched_off():
    traced = torch.jit.trace(Ghost().eval(), torch.randn(2, 3, 8, 8))
    assert kinds(ipex.jit_optimize(traced, disable=[NAME]))["aten::add_"] == 1
