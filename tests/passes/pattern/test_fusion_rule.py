"""Rules are independent: no node fits two of them, so their order is no matter."""

from __future__ import annotations

import pytest

from ipex import _C
from ir import PACKED
from support import graph_ir

RULES = [name for name in _C.pass_names() if name in ("fuse_activation", "fuse_add", "fuse_arithmetic", "fuse_number")]
NUMBERS = (
    "%alpha : int = prim::Constant[value=2]()",
    "%number : float = prim::Constant[value=0.5]()",
    "%scalar : Float(requires_grad=0, device=cpu) = prim::Constant[value={1}]()",
)
NODES = [
    *(f"aten::{op}(%y)" for op in ("relu", "sigmoid", "tanh", "exp", "neg", "silu_", "relu_")),
    *(f"aten::{op}(%y, %o, %one)" for op in ("add", "sub", "add_", "sub_")),
    *(f"aten::{op}(%o, %y, %one)" for op in ("add", "sub")),
    *(f"aten::{op}(%y, %number, %alpha)" for op in ("add", "sub", "rsub")),
    *(f"aten::{op}(%y, %o)" for op in ("mul", "mul_", "div", "maximum", "minimum", "prelu")),
    *(f"aten::{op}(%y, %number)" for op in ("mul", "div", "clamp_min", "leaky_relu")),
    *(f"aten::{op}(%scalar, %y, %one)" for op in ("add", "sub")),
    "aten::mul(%scalar, %y)",
]


def test_all_rules_are_here():
    assert len(RULES) == 4


@pytest.mark.parametrize("node", NODES)
def test_a_node_fits_one_rule_at_most(node):
    ir = graph_ir("%x : Tensor, %o : Tensor", *PACKED, *NUMBERS, f"%z : Tensor = {node}", returns="%z")
    touched = [rule for rule in RULES for result in [_C.run_pass(rule, ir)] if result[1] or result[2]]
    assert len(touched) <= 1
