import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "read_known_sizes"
CONSTANTS = tuple(
    f"%{name} : int = prim::Constant[value={value}]()"
    for name, value in {"m2": -2, "m1": -1, "n0": 0, "n1": 1, "n2": 2, "n7": 7}.items()
)
ORDER = "%order : int[] = prim::Constant[value=[2, 0, 1]]()"


def ir(*lines: str, sizes: str = "%n, %m1, %n7") -> str:
    head = ("%n : int = aten::size(%x, %n0)", f"%sizes : int[] = prim::ListConstruct({sizes})")
    return graph_ir("%x : Tensor, %i : int", *CONSTANTS, ORDER, *head, *lines, returns="%s")


def shaped(op: str) -> str:
    implicit = "%no : bool = prim::Constant[value=0]()\n  " if op == "expand" else ""
    return f"{implicit}%y : Tensor = aten::{op}(%x, %sizes{', %no' if implicit else ''})"


@pytest.mark.parametrize("op", ["reshape", "view", "expand"])
@pytest.mark.parametrize("dimension", ["%n2", "%m1"])
def test_fires(op, dimension):
    result = assert_rewrites(NAME, ir(shaped(op), f"%s : int = aten::size(%y, {dimension})"))
    assert result.count("aten::size") == 0
    assert "value=7" in result.graph


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("%z : Tensor = aten::permute(%y, %order)", "%s : int = aten::size(%z, %n1)"), "aten::size"),
        (("%z : Tensor = aten::transpose(%y, %n0, %n2)", "%s : int = aten::size(%z, %n2)"), "aten::size"),
        (("%z : Tensor = aten::transpose(%y, %m1, %m2)", "%s : int = aten::size(%z, %m2)"), "value=7"),
    ],
)
def test_fires_through_permutations(lines, found):
    result = assert_rewrites(NAME, ir(shaped("reshape"), *lines))
    assert found in result.graph
    assert result.count("aten::reshape") == 0


@pytest.mark.parametrize(
    "lines",
    [
        (shaped("reshape"), "%s : int = aten::size(%y, %n1)"),  # any
        (shaped("reshape"), "%s : int = aten::size(%y, %i)"),
        ("%s : int = aten::size(%x, %n1)",),
        (shaped("reshape"), "%z : Tensor = aten::transpose(%y, %n0, %m1)", "%s : int = aten::size(%z, %n0)"),
        (shaped("reshape"), "%z : Tensor = aten::relu(%y)", "%s : int = aten::size(%z, %n2)"),
    ],
)
def test_leaves_others(lines):
    assert_unchanged(NAME, ir(*lines), reason=None)


def test_leaves_numbers_that_may_be_negative():
    asks = "%s : int = aten::size(%y, %n0)"
    assert_unchanged(NAME, ir(shaped("reshape"), asks, sizes="%i, %n7"), reason=None)
    less = "%less : int = aten::sub(%n, %n7)"
    sizes = "%few : int[] = prim::ListConstruct(%less, %m1)"
    assert_unchanged(NAME, ir(less, sizes, "%y : Tensor = aten::reshape(%x, %few)", asks), reason=None)


def test_leaves_lists_that_change():
    grows = "%grown : int[] = aten::append(%sizes, %n1)"
    assert_unchanged(NAME, ir(grows, shaped("reshape"), "%s : int = aten::size(%y, %n2)"), reason=None)


def test_declines_where_shapes_change():
    text = ir(shaped("reshape"), "%w : Tensor = aten::squeeze_(%y)", "%s : int = aten::size(%y, %n2)")
    assert_unchanged(NAME, text, reason="the graph changes shapes in place")


class Windows(nn.Module):
    """Windows that are put together to an image, which is cut into a grid, as in MaxViT."""

    def forward(self, x: Tensor) -> Tensor:
        y = (x * 2).reshape(x.size(0), 4, 4, 3, 3, 8).permute(0, 5, 1, 3, 2, 4).reshape(x.size(0), 8, 12, 12)
        batch, channels, height, width = y.shape
        y = y.reshape(batch, channels, height // 4, 4, width // 4, 4).permute(0, 2, 4, 3, 5, 1)
        return y.reshape(batch, 9, 16, channels).softmax(-1).sum(-1)


def test_windows_are_cut_anew_in_one_go():
    x = torch.randn(2, 16, 9, 8)
    optimized = check_against_eager(Windows(), x, also=(x[:1],))
    assert kinds(optimized)["ipex::rearrange"] == 1
    assert kinds(optimized)["aten::reshape"] == 0


def test_can_be_switched_off():
    module = torch.jit.trace(Windows().eval(), torch.randn(2, 16, 9, 8))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["ipex::rearrange"] == 2
