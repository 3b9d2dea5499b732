"""Each invariant sees what breaks it, and only that."""

from __future__ import annotations

import pytest

from ipex import _C
from support import graph_ir

X = "%x : Tensor"
MATRIX = "%w : Float(4, 4, strides=[4, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
VECTOR = "%b : Float(4, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
NONE, ZERO, ONE = (
    "%none : NoneType = prim::Constant()",
    "%zero : int = prim::Constant[value=0]()",
    "%one : int = prim::Constant[value=1]()",
)
FALSE, HALF = "%false : bool = prim::Constant[value=0]()", "%half : float = prim::Constant[value=0.5]()"
LIST, CAST = "%list : Tensor[] = prim::ListConstruct(%x)", "%cast : Tensor[] = prim::unchecked_cast(%list)"
# The invariant, what breaks it, and what looks like that and doesn't.
CASES = [
    (
        "one_name_per_op",
        [ZERO, LIST, "%y : Tensor = aten::concat(%list, %zero)"],
        [ZERO, LIST, "%y : Tensor = aten::cat(%list, %zero)"],
    ),
    (
        "no_dropout",
        [HALF, FALSE, "%y : Tensor = aten::dropout(%x, %half, %false)"],
        [HALF, "%t : bool = prim::Constant[value=1]()", "%y : Tensor = aten::dropout(%x, %half, %t)"],
    ),
    (
        "integer_sizes",
        [
            ZERO,
            "%s : int = aten::size(%x, %zero)",
            "%t : Tensor = prim::NumToTensor(%s)",
            "%i : int = aten::Int(%t)",
            "%y : Tensor = aten::select(%x, %zero, %i)",
        ],
        [ZERO, "%i : int = aten::Int(%x)", "%y : Tensor = aten::select(%x, %zero, %i)"],
    ),
    (
        "one_linear_pattern",
        [MATRIX, "%y : Tensor = aten::matmul(%x, %w)"],
        [MATRIX, "%y : Tensor = aten::matmul(%w, %x)"],
    ),
    (
        "one_linear_pattern",
        [MATRIX, "%y : Tensor = aten::mm(%x, %w)"],
        [MATRIX.replace("(4, 4, strides=[4,", "(4, 0, strides=[1,"), "%y : Tensor = aten::mm(%x, %w)"],
    ),
    (
        "anchors_prepacked",
        [MATRIX, NONE, "%y : Tensor = aten::linear(%x, %w, %none)"],
        [NONE, "%y : Tensor = aten::linear(%x, %x, %none)"],
    ),
    (
        "lists_are_values",
        [LIST, "%l : Tensor[] = aten::append(%list, %x)", "%y : Tensor = aten::relu(%x)"],
        [LIST, CAST, "%l : Tensor[] = aten::append(%cast, %x)", "%y : Tensor = aten::relu(%x)"],
    ),
    (
        "ops_lowered",
        [ZERO, LIST, "%y : Tensor = aten::cat(%list, %zero)"],
        [ZERO, LIST, "%y : Tensor = aten::stack(%list, %zero)"],
    ),
    (
        "aten_names",
        [ZERO, LIST, "%y : Tensor = ipex::cat(%list, %zero)"],
        [ZERO, LIST, "%y : Tensor = aten::cat(%list, %zero)"],
    ),
    (
        "eager_layouts",
        ["%rank : int = prim::Constant[value=2]()", "%y : Tensor = ipex::to_channels_last(%x, %rank)"],
        ["%y : Tensor = aten::relu(%x)"],
    ),
    (
        "plain_views",
        [
            "%n : int[] = prim::Constant[value=[0]]()",
            '%a : str = prim::Constant[value="reshape"]()',
            "%s : str[] = prim::ListConstruct(%a)",
            "%y : Tensor = ipex::rearrange(%x, %s, %n, %n)",
        ],
        ["%n : int[] = prim::Constant[value=[0]]()", "%y : Tensor = aten::permute(%x, %n)"],
    ),
]


def broken(lines: list[str]) -> set[str]:
    return {name for name, _ in _C.broken_invariants(graph_ir(X, *lines, returns="%y"))}


@pytest.mark.parametrize(("name", "breaks", "keeps"), CASES, ids=[case[0] for case in CASES])
def test_it_sees_what_breaks_it_and_only_that(name, breaks, keeps):
    assert name in broken(breaks)
    assert name not in broken(keeps)


def test_the_node_is_named():
    ((name, node),) = _C.broken_invariants(
        graph_ir(X, HALF, FALSE, "%y : Tensor = aten::dropout(%x, %half, %false)", returns="%y")
    )
    assert name == "no_dropout"
    assert node.startswith("aten::dropout (%")


def test_a_node_in_a_branch_is_seen():
    lines = [
        HALF,
        FALSE,
        "%c : bool = prim::Constant[value=1]()",
        "%y : Tensor = prim::If(%c)",
        "  block0():",
        "    %d : Tensor = aten::dropout(%x, %half, %false)",
        "    -> (%d)",
        "  block1():",
        "    -> (%x)",
    ]
    assert broken(lines) == {"no_dropout"}
