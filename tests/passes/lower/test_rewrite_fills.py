import pytest
import torch
from torch import nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "rewrite_fills"
CONSTANTS = (
    "%none : NoneType = prim::Constant()",
    "%no : bool = prim::Constant[value=0]()",
    "%double : int = prim::Constant[value=7]()",
    "%two : int = prim::Constant[value=2]()",
)
FILLS = {
    "new_zeros": ("%x, %size, {dtype}, %none, %none, %no", "ipex::new_full"),
    "new_ones": ("%x, %size, {dtype}, %none, %none, %none", "ipex::new_full"),
    "new_full": ("%x, %size, %two, {dtype}, %none, %none, %no", "ipex::new_full"),
    "zeros_like": ("%x, {dtype}, %none, %none, %no, %none", "ipex::full_like"),
    "ones_like": ("%x, {dtype}, %none, %none, %no, %none", "ipex::full_like"),
    "full_like": ("%x, %two, {dtype}, %none, %none, %no, %none", "ipex::full_like"),
}


def ir(op: str, dtype: str) -> str:
    arguments = FILLS[op][0].format(dtype=dtype)
    return graph_ir("%x : Tensor, %size : int[]", *CONSTANTS, f"%y : Tensor = aten::{op}({arguments})", returns="%y")


@pytest.mark.parametrize("op", FILLS)
def test_fires(op):
    result = assert_rewrites(NAME, ir(op, "%none"))
    assert result.count(FILLS[op][1]) == 1
    assert result.count(f"aten::{op}") == 0


@pytest.mark.parametrize("op", FILLS)
def test_declines_another_dtype(op):
    assert_unchanged(NAME, ir(op, "%double"), reason="another dtype")


class Pieces(nn.Module):
    """Fills, and writes a piece of each, as Longformer does with its scores."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        y = self.linear(x).transpose(0, 1)
        whole = y.new_zeros((y.shape[0], 4, 8))
        whole[:, :2, 1:7] = y[:, :2]
        like = torch.full_like(y, -torch.inf)
        like[:, 1:] = y[:, 1:]
        return whole, like, y.new_ones(3), torch.ones_like(y), y.new_full((2, 0), 7.5), torch.zeros_like(y)


@pytest.mark.parametrize("x", [torch.randn(3, 5, 6), torch.randn(3, 5, 6).double()], ids=["float32", "float64"])
def test_matches_eager(tmp_path, x):
    optimized = check_against_eager(Pieces().to(x.dtype), x)
    assert kinds(optimized)["ipex::new_full"] == 3
    assert kinds(optimized)["ipex::full_like"] == 3
    assert_round_trip(optimized, tmp_path, x)


def test_can_be_switched_off():
    module = torch.jit.trace(Pieces().eval(), torch.randn(3, 5, 6))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::full_like"] == 1
