import pytest
import torch
from torch import nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "remove_idle_copies"
CONSTANTS = (
    "%no : bool = prim::Constant[value=0]()",
    *(
        f"%{name} : int = prim::Constant[value={value}]()"
        for name, value in {"n0": 0, "n1": 1, "m1": 1, "n2": 2, "max": 2**63 - 1}.items()
    ),
)
PIECE = "%p : Tensor = aten::slice(%x, %n1, %n1, %max, %n1)"
AGAIN = "%q : Tensor = aten::slice(%x, %m1, %n1, %max, %m1)"
UPDATE = "%s : Tensor = aten::add_(%p, %y, %n1)"
COPY = "%c : Tensor = aten::copy_(%q, %s, %no)"


def ir(*lines: str) -> str:
    return graph_ir("%x : Tensor, %y : Tensor", *CONSTANTS, *lines, returns="%c")


def test_fires():
    result = assert_rewrites(NAME, ir(PIECE, UPDATE, AGAIN, COPY))
    assert result.count("aten::copy_") == 0
    assert result.count("aten::add_") == 1


def test_fires_for_views_of_views_and_several_updates():
    views = [
        f"%{to} : Tensor = aten::{view}"
        for to, view in {
            "p": "select(%x, %n0, %n1)",
            "p1": "transpose(%p, %n1, %n2)",
            "q": "select(%x, %n0, %n1)",
            "q1": "transpose(%q, %n1, %n2)",
        }.items()
    ]
    updates = ("%s : Tensor = aten::add_(%p1, %y, %n1)", "%t : Tensor = aten::relu_(%s)")
    copy = "%c : Tensor = aten::copy_(%q1, %t, %no)"
    assert assert_rewrites(NAME, ir(*views[:2], *updates, *views[2:], copy)).count("aten::copy_") == 0
    assert assert_rewrites(NAME, ir(*views, *updates, copy)).count("aten::copy_") == 0


@pytest.mark.parametrize(
    "lines",
    [
        (PIECE, UPDATE, AGAIN.replace("%n1, %max", "%n0, %max"), COPY),  # another piece
        (PIECE, UPDATE, AGAIN.replace("%x", "%y"), COPY),  # of another tensor
        (PIECE, UPDATE, "%q : Tensor = aten::select(%x, %n1, %n1)", COPY),
        (PIECE, "%s : Tensor = aten::add(%p, %y, %n1)", AGAIN, COPY),  # not written yet
        (PIECE, AGAIN, COPY.replace("%s", "%p")),  # no update checked the piece
        (PIECE, "%s : Tensor = aten::fill_(%p, %n1)", AGAIN, COPY),
        (PIECE, "%s : Tensor = aten::index_select(%p, %n1, %y)", AGAIN, COPY),
        ("%p : Tensor = aten::relu(%x)", UPDATE, "%q : Tensor = aten::relu(%x)", COPY),  # not the same memory
    ],
)
def test_leaves_others(lines):
    assert_unchanged(NAME, ir(*lines), reason=None)


def test_declines_where_shapes_change():
    text = ir(PIECE, UPDATE, "%z : Tensor = aten::squeeze_(%x)", AGAIN, COPY)
    assert_unchanged(NAME, text, reason="the graph changes shapes in place")


class Bordered(nn.Module):
    """As attention adds relative positions to all scores but those of a class token."""

    def forward(self, x, y):
        x = x * 2
        before = x[:, 0]
        x[:, 1:, 1:] += y
        x[..., 0] *= before
        x[0] = x[1]
        return x.softmax(-1), before


def test_matches_eager(tmp_path):
    x, y = torch.randn(2, 5, 5), torch.randn(2, 4, 4)
    optimized = check_against_eager(Bordered(), x, y, also=((x.transpose(1, 2), y),))
    assert kinds(optimized)["aten::copy_"] == 1
    assert_round_trip(optimized, tmp_path, x, y)


class Caller(nn.Module):
    def forward(self, x):
        x[:, 1:] += 1
        return x


def test_the_callers_tensor_changes_as_in_eager():
    optimized = check_against_eager(Caller(), torch.randn(2, 5), also=(torch.randn(2, 2, 3),))
    assert kinds(optimized)["aten::copy_"] == 0
    with torch.no_grad(), pytest.raises(RuntimeError, match="single memory location"):
        optimized(torch.randn(2, 1).expand(2, 5))


def test_can_be_switched_off():
    module = torch.jit.trace(Bordered().eval(), (torch.randn(2, 5, 5), torch.randn(2, 4, 4)))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::copy_"] == 3
