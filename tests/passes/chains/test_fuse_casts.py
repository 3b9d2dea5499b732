"""Casts around elementwise ops and norms between layers of 16 bits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ipex
from low_precision import both_dtypes
from support import assert_rewrites, assert_round_trip, assert_same, assert_unchanged, graph_ir, kinds

NAME = "fuse_casts"
CONSTANTS = (
    "%none : NoneType = prim::Constant()",
    "%one : int = prim::Constant[value=1]()",
    "%half : int = prim::Constant[value=15]()",
    "%other : int = prim::Constant[value=5]()",
    "%true : bool = prim::Constant[value=1]()",
    "%shape : int[] = prim::Constant[value=[8]]()",
    "%eps : float = prim::Constant[value=1e-05]()",
    '%steps : str[] = prim::Constant[value=["mul 0 1"]]()',
)
RESTORE = "%a : Tensor = ipex::restore_precision(%x)"
CHAIN = ("%list : Tensor[] = prim::ListConstruct(%a, %w)", "%y : Tensor = ipex::elementwise(%list, %steps)")
NORM = "%y : Tensor = ipex::layer_norm(%a, %shape, %w, %w, %eps)"
RMS_NORM = "%y : Tensor = ipex::rms_norm(%a, %w, %eps, %none, %none)"
ADD_NORM = "%y : Tensor, %sum : Tensor = ipex::layer_norm.of_sum(%a, %w, %shape, %w, %w, %eps, %true, %true)"
LOWER = "%l : Tensor = ipex::lower_precision(%y, %half)"


def ir(*lines: str, returns: str = "%l") -> str:
    return graph_ir("%x : Tensor, %w : Tensor", *CONSTANTS, *lines, returns=returns)


each_op = pytest.mark.parametrize("lines", [CHAIN, (NORM,), (RMS_NORM,)], ids=["chain", "layer_norm", "rms_norm"])


def casts(result) -> tuple[int, int]:
    return result.count("ipex::restore_precision"), result.count("ipex::lower_precision")


@each_op
def test_fires(lines):
    assert casts(assert_rewrites(NAME, ir(RESTORE, *lines, LOWER))) == (0, 0)
    assert casts(assert_rewrites(NAME, ir(RESTORE, *lines, returns="%y"))) == (0, 0)
    assert casts(assert_rewrites(NAME, ir(RESTORE, *lines, LOWER, returns="%l, %a"))) == (1, 0)


@each_op
def test_gives_float32_where_others_read_it(lines):
    assert casts(assert_rewrites(NAME, ir(RESTORE, *lines, LOWER, returns="%l, %y"))) == (0, 1)
    two = (LOWER, "%k : Tensor = ipex::lower_precision(%y, %other)")
    assert casts(assert_rewrites(NAME, ir(RESTORE, *lines, *two, returns="%l, %k"))) == (0, 2)


def test_a_norm_of_a_sum_gives_16_bits():
    assert casts(assert_rewrites(NAME, ir(RESTORE, ADD_NORM, LOWER, returns="%l, %sum"))) == (1, 0)


@each_op
def test_reads_what_was_there(lines):
    """A write between the cast and the op."""
    assert_unchanged(NAME, ir(RESTORE, "%o : Tensor = aten::relu_(%x)", *lines, returns="%y, %o"), reason=None)


def test_sums_read_and_give_16_bits():
    lines = (RESTORE, CHAIN[0], "%y : Tensor = ipex::elementwise.sum(%list, %steps, %shape, %true)", LOWER)
    assert casts(assert_rewrites(NAME, ir(*lines))) == (0, 0)


def test_several_results_are_cast_where_all_are():
    several = "%all : Tensor[] = ipex::elementwise.several(%list, %steps, %shape)"
    pieces = "%y : Tensor, %z : Tensor = prim::ListUnpack(%all)"
    both = (LOWER, LOWER.replace("%l ", "%k ").replace("%y", "%z"))
    lines = (RESTORE, CHAIN[0], several, pieces)
    assert casts(assert_rewrites(NAME, ir(*lines, *both, returns="%l, %k"))) == (0, 0)
    assert casts(assert_rewrites(NAME, ir(*lines, LOWER, returns="%l, %z"))) == (0, 1)


class Excited(nn.Module):
    """Layers with a gate, a mean and a norm between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.second = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 1), nn.Conv2d(16, 16, 1)
        self.norm, self.last = nn.LayerNorm(16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = x * torch.sigmoid(self.gate(x.mean((2, 3), keepdim=True)))
        x = self.second(x).flatten(2).transpose(1, 2)
        return self.last(self.norm(x))


class Windows(nn.Module):
    """Norms that move rows to windows, and norms of rows that came from there."""

    def __init__(self, normalized: tuple[int, ...]) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.norm, self.second = nn.LayerNorm(normalized), nn.LayerNorm(normalized)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        windows = torch.roll(self.norm(x), (-1, -1), (1, 2)).reshape(-1, 2, 2, 3, 2, 16).transpose(2, 3)
        windows = self.inner(windows.reshape(-1, 4, 16)).reshape(-1, 2, 3, 2, 2, 16).transpose(2, 3)
        return self.last(self.second(torch.roll(windows.reshape(-1, 4, 6, 16), (1, 1), (1, 2))))


@both_dtypes
@pytest.mark.parametrize(
    ("model", "shape"),
    [(Excited(), (2, 3, 12, 9)), (Windows((16,)), (2, 4, 6, 16)), (Windows((6, 16)), (2, 4, 6, 16))],
    ids=["excited", "windows", "windows of another norm"],
)
def test_values_are_the_same_bit_by_bit(dtype, model, shape):
    x = torch.randn(shape)
    traced = torch.jit.trace(model.eval(), x)
    with torch.no_grad():
        fused = ipex.jit_optimize(traced, dtype=dtype)
        apart = ipex.jit_optimize(traced, dtype=dtype, disable=[NAME])
        assert sum(kinds(apart)[f"ipex::{op}_precision"] for op in ("lower", "restore")) > sum(
            kinds(fused)[f"ipex::{op}_precision"] for op in ("lower", "restore")
        )
        assert_same(fused(x), apart(x), 0)


@both_dtypes
def test_a_model_casts_at_its_ends_only(dtype, tmp_path):
    model, x = Excited().eval(), torch.randn(2, 3, 12, 9)
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, x), dtype=dtype)
        expected = model(x)
        assert (optimized(x) - expected).abs().max() <= 0.03 * expected.abs().max()
    # The image.
    assert kinds(optimized)["ipex::lower_precision"] == 1
    assert kinds(optimized)["ipex::restore_precision"] == 1
    assert_round_trip(optimized, tmp_path, x)
