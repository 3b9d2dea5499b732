"""rewrite_attention: see tests/runtime/ops/attention/test_scaled_dot_product_attention.py for the values."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "rewrite_attention"
CONSTANTS = (
    "%none : NoneType = prim::Constant()",
    "%zero : float = prim::Constant[value=0.]()",
    "%no : bool = prim::Constant[value=0]()",
)
CALL = "%y : Tensor = aten::scaled_dot_product_attention(%q, %k, %v, %m, %zero, %no, %none, %no)"


def test_fires():
    graph = graph_ir("%q : Tensor, %k : Tensor, %v : Tensor, %m : Tensor?", *CONSTANTS, CALL, returns="%y")
    result = assert_rewrites(NAME, graph)
    assert result.count("ipex::scaled_dot_product_attention") == 1


def test_leaves_other_ops_alone():
    graph = graph_ir("%q : Tensor, %k : Tensor", "%y : Tensor = aten::matmul(%q, %k)", returns="%y")
    assert_unchanged(NAME, graph, reason=None)


class Attention(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = F.scaled_dot_product_attention(x, x, x, mask)
        return y * F.scaled_dot_product_attention(x, x, x, scale=0.3, is_causal=True)


def test_matches_eager(tmp_path):
    x, mask = torch.randn(2, 3, 9, 8), torch.randn(9, 9)
    optimized = check_against_eager(Attention(), x, mask)
    assert kinds(optimized)["ipex::scaled_dot_product_attention"] == 2
    assert_round_trip(optimized, tmp_path, x, mask)


def test_can_be_switched_off():
    x, mask = torch.randn(2, 3, 9, 8), torch.randn(9, 9)
    optimized = ipex.jit_optimize(torch.jit.trace(Attention().eval(), (x, mask)), disable=[NAME])
    assert kinds(optimized)["aten::scaled_dot_product_attention"] == 2
