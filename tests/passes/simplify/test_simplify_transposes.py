import pytest
import torch
from torch import Tensor, nn

from support import assert_rewrites, assert_unchanged, check_against_eager, graph_ir, kinds

NUMBERS = (
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
    "%three : int = prim::Constant[value=3]()",
    "%last : int[] = prim::Constant[value=[0, 2, 3, 1]]()",
    "%first : int[] = prim::Constant[value=[0, -1, 1, 2]]()",
)


def two(inner: str, outer: str, *readers: str, returns: str = "%b") -> str:
    lines = (*NUMBERS, f"%a : Tensor = {inner}", f"%b : Tensor = {outer}", *readers)
    return graph_ir("%x : Tensor, %d : int", *lines, returns=returns)


every_pair = pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("aten::transpose(%x, %one, %two)", "aten::transpose(%a, %two, %one)"),
        ("aten::t(%x)", "aten::t(%a)"),
        ("aten::permute(%x, %last)", "aten::permute(%a, %first)"),
    ],
)


@every_pair
def test_one_undoes_the_other(inner, outer):
    ir = two(inner, outer, "%y : Tensor = aten::relu(%b)", returns="%y")
    assert "aten::relu(%x)" in assert_rewrites("simplify_transposes", ir).graph


@every_pair
def test_what_the_caller_gets_is_a_tensor_of_its_own(inner, outer):
    result = assert_rewrites("simplify_transposes", two(inner, outer))
    assert "aten::alias(%x)" in result.graph


@pytest.mark.parametrize(
    "write",
    [
        "aten::t_(%b)",
        "aten::t_(%a)",
        "aten::unsqueeze_(%x, %one)",
        "aten::resize_as_(%x, %b, %none)",
        "aten::mul(%b, %b, %x)",  # out=%x
    ],
)
def test_leaves_graphs_alone_that_change_shapes(write):
    ir = two("aten::t(%x)", "aten::t(%a)", "%none : NoneType = prim::Constant()", f"%y : Tensor = {write}")
    assert_unchanged("simplify_transposes", ir, reason="the graph changes shapes in place")


def test_writes_to_elements_do_not_matter():
    ir = two("aten::t(%x)", "aten::t(%a)", "%y : Tensor = aten::relu_(%b)", returns="%y")
    assert_rewrites("simplify_transposes", ir)


def test_two_become_one():
    result = assert_rewrites("simplify_transposes", two("aten::permute(%x, %last)", "aten::permute(%a, %last)"))
    assert result.count("aten::permute") == 1
    assert "value=[0, 3, 1, 2]" in result.graph


@pytest.mark.parametrize(
    ("inner", "outer", "reason"),
    [
        ("aten::transpose(%x, %one, %two)", "aten::transpose(%a, %one, %three)", None),
        ("aten::transpose(%x, %one, %d)", "aten::transpose(%a, %one, %d)", "not constants"),
    ],
)
def test_declines(inner, outer, reason):
    assert_unchanged("simplify_transposes", two(inner, outer), reason=reason)


class Transposed(nn.Module):
    """There and back, with the value in between used as well."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = x.permute(0, 2, 3, 1)
        b = a.permute(0, 3, 1, 2)
        return b * 2, a + 1, a.permute(0, 2, 3, 1)


class Reshaped(nn.Module):
    """There and back, with the tensor or what lies between reshaped meanwhile or afterwards."""

    def __init__(self, write) -> None:
        super().__init__()
        self.write = write

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x * 1
        first = x.transpose(0, 1)
        a = self.write(x, first)
        second = a.transpose(0, 1)
        self.write(x, first)
        return second * 2, x, first


@pytest.mark.parametrize(
    "write",
    [
        lambda x, a: [x.as_strided_((2, 2), (2, 1)), a][1],
        lambda x, a: [torch.mul(torch.ones(6, 2), 3, out=x), a][1],
        lambda x, a: [x.unsqueeze_(0), a][1],
        lambda x, a: a.squeeze_(0) if a.dim() > 2 else a.unsqueeze_(0),
    ],
    ids=["as_strided_", "out=", "unsqueeze_", "of the transposed"],
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_reshaped_in_between(write):
    check_against_eager(Reshaped(write), torch.randn(3, 4))


def test_matches_eager():
    optimized = check_against_eager(Transposed(), torch.randn(2, 3, 4, 5))
    assert kinds(optimized)["aten::permute"] == 2
