import pytest
import torch
from torch import nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "remove_idle_slices"
CONSTANTS = (
    "%none : NoneType = prim::Constant()",
    "%one : int[] = prim::Constant[value=[-1]]()",
    *(
        f"%{name} : int = prim::Constant[value={value}]()"
        for name, value in {"m1": -1, "n0": 0, "n1": 1, "n2": 2, "max": 2**63 - 1}.items()
    ),
)


def ir(*lines: str, returns: str = "%y") -> str:
    return graph_ir("%x : Tensor", *CONSTANTS, *lines, returns=returns)


def sliced(name: str, arguments: str) -> str:
    return f"%{name} : Tensor = aten::slice({arguments})"


CUT = sliced("y", "%b, %n2, %n0, %max, %n2")


@pytest.mark.parametrize("bounds", ["%n0, %max", "%none, %none", "%none, %max", "%n0, %none"])
def test_fires(bounds):
    idle = (sliced("a", f"%x, %n0, {bounds}, %n1"), sliced("b", f"%a, %n1, {bounds}, %n1"))
    assert assert_rewrites(NAME, ir(*idle, CUT)).count("aten::slice") == 1
    select = "%y : Tensor = aten::select(%b, %n2, %n1)"
    assert assert_rewrites(NAME, ir(*idle, select)).count("aten::slice") == 0


def test_fires_for_several_readers():
    more = (sliced("z", "%b, %n2, %n1, %max, %n2"), "%l : Tensor[] = prim::ListConstruct(%y, %z)")
    assert (
        assert_rewrites(NAME, ir(sliced("b", "%x, %n1, %n0, %max, %n1"), CUT, *more, returns="%l")).count("aten::slice")
        == 2
    )


RESHAPED = ("%s : int[] = prim::ListConstruct(%n2, %n2, %m1)", "%r : Tensor = aten::reshape(%x, %s)")
IDLE = sliced("b", "%r, %n2, %n0, %max, %n1")


@pytest.mark.parametrize(
    "lines",
    [
        (*RESHAPED, IDLE),
        ("%r : Tensor = aten::unsqueeze(%x, %n2)", IDLE),
        ("%t : Tensor = aten::unsqueeze(%x, %n2)", "%r : Tensor = aten::add(%x, %t, %n1)", IDLE),
        (RESHAPED[0], "%r : Tensor = aten::zeros(%s, %none, %none, %none, %none)", IDLE),
        ("%t : Tensor = aten::transpose(%x, %n2, %n0)", "%r : Tensor = aten::tanh(%t)", IDLE),
        (sliced("t", "%x, %n2, %n1, %max, %n1"), "%r : Tensor = aten::neg(%t)", IDLE),
        ("%t : Tensor = aten::unsqueeze(%x, %n2)", "%q : Tensor = aten::unsqueeze(%t, %n2)",
         "%r : Tensor = aten::select(%q, %n0, %n0)", IDLE),
        ("%t : Tensor = aten::unsqueeze(%x, %n2)", "%q : Tensor = aten::unsqueeze(%t, %n2)",
         "%u : Tensor[] = aten::unbind(%q, %n0)", "%r : Tensor, %p : Tensor = prim::ListUnpack(%u)", IDLE),
        ("%u : Tensor[] = aten::chunk(%x, %n2, %n2)", "%r : Tensor, %p : Tensor = prim::ListUnpack(%u)", IDLE),
        ("%u : Tensor[] = aten::split(%x, %n1, %n2)", "%r : Tensor, %p : Tensor = prim::ListUnpack(%u)", IDLE),
    ],
)  # fmt: skip
def test_fires_for_any_reader_where_the_dimension_is_there(lines):
    kept = sum("aten::slice" in line for line in lines) - 1
    text = ir(*lines, "%y : Tensor = aten::relu(%b)")
    assert assert_rewrites(NAME, text).count("aten::slice") == kept
    text = ir(*lines, "%z : Tensor = aten::reshape(%b, %one)", "%y : Tensor = aten::relu(%z)")
    assert assert_rewrites(NAME, text).count("aten::slice") == kept


def test_fires_for_a_piece_that_is_joined():
    lines = ("%l : Tensor[] = prim::ListConstruct(%b, %x)", "%y : Tensor = aten::cat(%l, %n0)")
    assert assert_rewrites(NAME, ir(*RESHAPED, IDLE, *lines)).count("aten::slice") == 0
    assert_unchanged(NAME, ir(*RESHAPED, IDLE, *lines, returns="%l"), reason=None)


@pytest.mark.parametrize(
    "lines",
    [
        ("%y : Tensor = aten::clone(%b, %none)", "%q : Tensor = aten::t_(%b)"),  # changes the dimensions
        ("%y : Tensor = aten::contiguous(%b, %n0)",),  # may be the piece, which is returned
        ("%y : Tensor[] = prim::ListConstruct(%b)",),
    ],
)
def test_leaves_a_tensor_that_is_one_of_its_own(lines):
    assert_unchanged(NAME, ir(*RESHAPED, IDLE, *lines), reason=None)


@pytest.mark.parametrize(
    "first",
    [
        "%r : Tensor = aten::select(%x, %n2, %n0)",
        "%u : Tensor[] = aten::unbind(%x, %n2)\n%r : Tensor, %p : Tensor = prim::ListUnpack(%u)",
        "%u : Tensor[] = aten::chunk(%x, %n2, %n1)\n%r : Tensor, %p : Tensor = prim::ListUnpack(%u)",
        "%r : Tensor = aten::transpose(%x, %n1, %n0)",
        "%r : Tensor = aten::unsqueeze(%x, %n1)",
        "%r : Tensor = aten::unsqueeze(%x, %m1)",
        "%r : Tensor = aten::tanh(%x)",
    ],
)
def test_leaves_dimensions_that_may_not_be_there(first):
    assert_unchanged(NAME, ir(*first.split("\n"), IDLE, "%y : Tensor = aten::relu(%b)"), reason=None)


@pytest.mark.parametrize(
    "lines",
    [
        (sliced("b", "%x, %n1, %n1, %max, %n1"), CUT),  # cuts
        (sliced("b", "%x, %n1, %n0, %n2, %n1"), CUT),
        (sliced("b", "%x, %n1, %n0, %max, %n2"), CUT),
        (sliced("b", "%x, %m1, %n0, %max, %n1"), CUT),  # of an unknown dimension
        (sliced("b", "%x, %n2, %n0, %max, %n1"), CUT),  # refuses what the other takes
        (sliced("b", "%x, %n1, %n0, %max, %n1"), "%y : Tensor = aten::relu(%b)"),
        (sliced("y", "%x, %n1, %n0, %max, %n1"),),
        (sliced("b", "%x, %n1, %n0, %max, %n1"), CUT, "%l : Tensor[] = prim::ListConstruct(%y, %b)"),
    ],
)
def test_leaves_others(lines):
    returns = "%l" if "%l" in lines[-1] else "%y"
    assert_unchanged(NAME, ir(*lines, returns=returns), reason=None)


def test_declines_what_may_be_overwritten():
    write = "%w : Tensor = aten::squeeze_(%x)"
    text = ir(sliced("b", "%x, %n1, %n0, %max, %n1"), write, CUT)
    assert_unchanged(NAME, text, reason="something may be overwritten before it is read")


def test_a_write_that_keeps_sizes_does_not_matter():
    text = ir(sliced("b", "%x, %n1, %n0, %max, %n1"), "%w : Tensor = aten::relu_(%x)", CUT)
    assert assert_rewrites(NAME, text).count("aten::slice") == 1


class Cut(nn.Module):
    def forward(self, x):
        return x[:, :, ::2, 1:] * 2, x[:], x[:, :, :, 0], x[:, 0]


def test_matches_eager(tmp_path):
    x = torch.randn(3, 2, 4, 5)
    optimized = check_against_eager(Cut(), x, script=True, also=(x[:1], x.transpose(2, 3)))
    assert kinds(optimized)["aten::slice"] == 3
    assert_round_trip(optimized, tmp_path, x)


class Chunks(nn.Module):
    """As a recurrence in chunks indexes: whole dimensions around what is cut, and pieces that are written."""

    def forward(self, x):
        heads = x.view(x.size(0), 2, -1, 4).transpose(1, 2)
        kept = torch.zeros_like(heads)
        kept[:, :, :1, :] = heads[:, :, 1:, :]
        return kept[:, :, :, None] + heads[:, :, :, :, None].exp(), heads[:, :, :, :]


@pytest.mark.parametrize("script", [False, True])
def test_whole_dimensions_of_heads(script):
    x = torch.randn(3, 40)
    optimized = check_against_eager(Chunks(), x, script=script, also=(x[:1], torch.randn(2, 16)))
    assert kinds(optimized)["aten::slice"] <= 6
    plain = ipex.jit_optimize(torch.jit.script(Chunks().eval()), disable=[NAME])
    assert kinds(plain)["aten::slice"] == 19


def test_refuses_what_eager_refuses():
    optimized = ipex.jit_optimize(torch.jit.script(Cut().eval()))
    with pytest.raises(RuntimeError, match="Dimension out of range"):
        optimized(torch.randn(3, 2))


def test_can_be_switched_off():
    module = torch.jit.script(Cut().eval())
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::slice"] == 9
