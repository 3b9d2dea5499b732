import pytest
import torch
from torch import Tensor, nn

import ipex
from ir import held
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
        (("%z : Tensor = aten::transpose(%y, %n0, %m1)", "%s : int = aten::size(%z, %n0)"), "value=7"),
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
        (shaped("reshape"), "%z : Tensor = aten::relu(%y)", "%s : int = aten::size(%z, %n2)"),
        (  # by a vector, whose result has no such dimension
            "%w : Float(7, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
            "%none : NoneType = prim::Constant()",
            "%z : Tensor = aten::linear(%x, %w, %none)",
            "%s : int = aten::size(%z, %m1)",
        ),
    ],
)
def test_leaves_others(lines):
    assert_unchanged(NAME, ir(*lines), reason=None)


NORM = (
    "%shape : int[] = prim::Constant[value=[7]]()",
    "%eps : float = prim::Constant[value=1e-05]()",
    "%none : NoneType = prim::Constant()",
    "%no : bool = prim::Constant[value=0]()",
    "%z : Tensor = aten::layer_norm({}, %shape, %none, %none, %eps, %no)",
)


def normed(of: str, dimension: str, *before: str) -> str:
    norm = (*NORM[:-1], NORM[-1].format(of))
    return ir(*before, *norm, f"%s : int = aten::size(%z, {dimension})", sizes="%n, %m1, %i")


def test_fires_for_what_gives_the_last_dimension():
    assert "value=7" in assert_rewrites(NAME, normed("%x", "%m1")).graph
    given = shaped("reshape")
    assert "value=7" in assert_rewrites(NAME, normed("%y", "%n2", given)).graph
    steps = ("%a : Tensor = aten::relu(%y)", "%p : Tensor = aten::add(%a, %y, %n1)")
    assert "value=7" in assert_rewrites(NAME, normed("%p", "%n2", given, *steps)).graph
    joined = ("%l : Tensor[] = prim::ListConstruct(%y, %x)", "%j : Tensor = aten::cat(%l, %n0)")
    assert "value=7" in assert_rewrites(NAME, normed("%j", "%n2", given, *joined)).graph


def test_leaves_a_dimension_that_may_not_be_the_last():
    assert_unchanged(NAME, normed("%x", "%n2"), reason=None)
    given = shaped("reshape")
    assert_unchanged(NAME, normed("%y", "%n1", given), reason=None)
    assert_unchanged(NAME, normed("%p", "%n2", given, "%p : Tensor = aten::add(%x, %y, %n1)"), reason=None)
    flat = ("%f : Tensor = aten::reshape(%x, %one)", "%l : Tensor[] = prim::ListConstruct(%f, %y)")
    one = "%one : int[] = prim::ListConstruct(%m1)"
    joined = (given, one, *flat, "%j : Tensor = aten::cat(%l, %n0)")
    assert_unchanged(NAME, normed("%j", "%n0", *joined), reason=None)


class Heads(nn.Module):
    """As in Swin: the scale is computed from the number of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 12), nn.LayerNorm(12), nn.Linear(12, 36)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(torch.nn.functional.dropout(self.first(x.permute(0, 2, 1)), 0.1, False))
        batch, length, channels = x.shape
        query, key, value = self.last(x).reshape(batch, length, 3, 2, channels // 2).permute(2, 0, 3, 1, 4).unbind(0)
        query = query * (channels // 2) ** -0.5
        x = (query.matmul(key.transpose(-2, -1)).softmax(-1) @ value).transpose(1, 2).reshape(batch, length, channels)
        return torch.cat((x, x), -1).reshape(batch, -1)


def test_heads_are_counted_when_the_model_is_optimised():
    optimized = check_against_eager(Heads(), torch.randn(2, 3, 5), also=(torch.randn(1, 3, 9),))
    found = kinds(optimized)
    assert found["aten::mul"] == found["aten::pow"] == 0
    module = torch.jit.trace(Heads().eval(), torch.randn(2, 3, 5))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::mul"] == 1


def test_leaves_numbers_that_may_be_negative():
    asks = "%s : int = aten::size(%y, %n0)"
    assert_unchanged(NAME, ir(shaped("reshape"), asks, sizes="%i, %n7"), reason=None)
    less = "%less : int = aten::sub(%n, %n7)"
    sizes = "%few : int[] = prim::ListConstruct(%less, %m1)"
    assert_unchanged(NAME, ir(less, sizes, "%y : Tensor = aten::reshape(%x, %few)", asks), reason=None)


def test_leaves_lists_that_change():
    grows = "%grown : int[] = aten::append(%sizes, %n1)"
    text = ir(grows, shaped("reshape"), "%s : int = aten::size(%y, %n2)")
    assert_unchanged(NAME, held(text, "sizes"), reason=None)


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


class Numbers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.arange(x.reshape(x.size(0), 6, 9).size(1)).float() * 0.5 + 1


class WrittenNumbers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(x.reshape(x.size(0), 6, 9).size(1)).float()
        steps.add_(x[0, 0, 0])
        return steps.sum() + x


@pytest.mark.parametrize("model", [Numbers(), WrittenNumbers()])
def test_a_tensor_of_known_numbers_that_somebody_writes_is_made_at_each_call(model):
    x = torch.randn(2, 6, 9)
    optimized = ipex.jit_optimize(torch.jit.script(model.eval()))
    for _ in range(3):
        torch.testing.assert_close(optimized(x), model(x))
        optimized(x).add_(1)  # as a caller may
