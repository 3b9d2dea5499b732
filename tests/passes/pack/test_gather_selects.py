import pytest
import torch
from torch import Tensor, nn

import ipex  # noqa: F401
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    kinds,
)

NAME = "gather_selects"
NUMBERS = tuple(f"%i{n} : int = prim::Constant[value={n}]()" for n in (-1, 0, 1, 2, 3))
NUMBERS = tuple(line.replace("%i-1", "%last") for line in NUMBERS)


def selects(*indices: str, dimension: str = "%i1", x: str = "%x") -> list[str]:
    return [f"%s{n} : Tensor = aten::select({x}, {dimension}, {index})" for n, index in enumerate(indices)]


def ir(*lines: str, returns: str = "%s0, %s3") -> str:
    return graph_ir("%x : Tensor, %n : int", *NUMBERS, *lines, returns=returns)


FOUR = selects("%i0", "%i2", "%last", "%i1")


def test_selects_of_one_tensor_are_one_op():
    result = assert_rewrites(NAME, ir(FOUR[0], "%y : Tensor = aten::relu(%s0)", *FOUR[1:]))
    assert (result.count("ipex::selects"), result.count("aten::select")) == (1, 0)
    assert "value=[0, 2, -1, 1]" in result.graph
    assert {d.reason for d in result.report} == {"one of 4 in one call"}


@pytest.mark.parametrize(
    "lines",
    [
        [*FOUR[:3], FOUR[3].replace("%i1, %i1", "%i2, %i1")],
        [*FOUR[:3], FOUR[3].replace("%i1)", "%n)")],
        selects("%i0", "%i2", "%last", "%i1", dimension="%n"),
        ["%l : Tensor[] = aten::unbind(%x, %i0)", *(f"%s{n} : Tensor = aten::select(%l, %i{n})" for n in range(4))],
        FOUR[:3],
    ],
    ids=["another dimension", "an index of a call", "a dimension of a call", "of a list", "few"],
)
def test_declines_what_gains_nothing(lines):
    assert_unchanged(NAME, ir(*lines, returns="%s0, %s2"), reason=None)


def test_declines_where_a_shape_changes():
    squeezed = "%y : Tensor = aten::squeeze_(%x)"
    assert_unchanged(NAME, ir(*FOUR[:2], squeezed, *FOUR[2:]), reason="changes the shape of a tensor in place")


def test_writes_are_seen_by_views_made_before():
    assert assert_rewrites(NAME, ir(*FOUR[:2], "%y : Tensor = aten::relu_(%x)", *FOUR[2:])).count("ipex::selects") == 1


class Steps(nn.Module):
    """A recurrence over time, written down, that hands its results in piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.decay, self.last = nn.Parameter(torch.rand(6)), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.tanh()
        state, out = torch.zeros_like(y[:, 0]), torch.zeros_like(y)
        for t in range(5):
            state = state * self.decay + y[:, t]
            out[:, t] = state
        return self.last(out), y[:, 1]


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(script, tmp_path):
    x = torch.randn(2, 5, 6)
    optimized = check_against_eager(Steps(), x, script=script, also=(x.transpose(0, 1)[:2].repeat(1, 3, 1), x[:0]))
    assert script or kinds(optimized)["ipex::selects"] == 2
    assert_round_trip(optimized, tmp_path, x)


def test_pieces_are_views_that_gradients_and_writes_go_through():
    x = torch.randn(2, 5, 6, requires_grad=True)
    pieces = torch.ops.ipex.selects(x, 1, [0, 3, -1, 1])
    (pieces[0] + pieces[1] * 2 + pieces[2]).sum().backward()
    assert torch.equal(x.grad[0, :, 0], torch.tensor([1.0, 0.0, 0.0, 2.0, 1.0]))
    y = torch.zeros(2, 5, 6, requires_grad=True).clone()
    torch.ops.ipex.selects(y, 1, [0, 4])[1].copy_(x[:, 0])
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0][:, 0], torch.ones(2, 6))
    with pytest.raises(IndexError, match="index 5 out of range"):
        torch.ops.ipex.selects(x, 1, [0, 5])
