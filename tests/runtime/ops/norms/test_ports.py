"""What norms do around themselves: every port with every other."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import ipex  # noqa: F401
from support import assert_same, why_aten

OPS = torch.ops.ipex
EPS, SCALE, ZERO = 1e-5, 0.05, 93
W, B = torch.randn(5), torch.randn(5)
STORED = {"floats": {}, "16 bits": {"dtype": torch.bfloat16}, "bytes": {"rounded": [SCALE, float(ZERO)]}}
Op = Callable[..., Tensor]
KINDS: dict[str, tuple[Op, tuple]] = {
    "layer_norm": (OPS.layer_norm, ([5], W, B, EPS)),
    "rms_norm": (OPS.rms_norm, (W, EPS, None, None)),
    "rms_norm of aten": (OPS.rms_norm, (W, EPS, None, [5])),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
WAYS = list(itertools.product(STORED, (False, True), (0, 1, 2)))
each_way = pytest.mark.parametrize(("how", "residual", "moved"), WAYS)


def moves() -> tuple[object, list[int]]:
    """Windows of an image of 4 by 6."""
    return OPS.row_moves_prepack(["reshape", "permute"], [5, 5]), [2, 2, 2, 6, 5, 0, 2, 1, 3, 4]


def in_eager(x: Tensor) -> Tensor:
    return x.reshape(2, 2, 2, 6, 5).permute(0, 2, 1, 3, 4)


def stored(y: Tensor, how: str) -> Tensor:
    if how == "bytes":
        return OPS.quantize(y.contiguous(), SCALE, ZERO)
    return y.bfloat16() if how == "16 bits" else y


def near(actual: Tensor, expected: Tensor, how: str) -> None:
    assert actual.dtype == expected.dtype
    if how == "bytes":  # a sum that is taken in another order may tip a rounding
        assert (actual.int() - expected.int()).abs().max() <= 1
    else:
        assert_same(actual, expected, 2**-7 if how == "16 bits" else 1e-5)


@each_kind
@each_way
def test_of_one_tensor(kind, how, residual, moved):
    op, given = KINDS[kind]
    x, r = torch.randn(2, 4, 6, 5), torch.randn(2, 2, 2, 6, 5) if moved else torch.randn(2, 4, 6, 5)
    ports = {**STORED[how], **({"residual": r} if residual else {})}
    if moved:
        context, numbers = moves()
        ports |= {"moves": context, "numbers": numbers, "moves_result": moved == 2}
    y = op(x, *given)
    expected = in_eager(y).contiguous() if moved else y
    near(op(x, *given, **ports), stored(r + expected if residual else expected, how), how)
    assert why_aten(lambda: op(x, *given, **ports)) is None


@each_kind
@each_way
def test_of_a_sum(kind, how, residual, moved):
    op, given = KINDS[kind]
    b = torch.randn(2, 4, 6, 5)
    a = torch.randn(2, 2, 2, 6, 5) if moved == 1 else torch.randn(2, 4, 6, 5)
    r = torch.randn(2, 2, 2, 6, 5) if moved else torch.randn(2, 4, 6, 5)
    ports = {**STORED[how], **({"residual": r} if residual else {})}
    if moved:
        context, numbers = moves()
        ports |= {"moves": context, "numbers": numbers, "moves_result": moved == 2}
    total = a + (in_eager(b) if moved == 1 else b)
    y = op(total, *given)
    expected = in_eager(y).contiguous() if moved == 2 else y
    before = a.clone()
    actual, kept = op.of_sum(a, b, *given, True, False, **ports)
    near(actual, stored(r + expected if residual else expected, how), how)
    assert_same(kept, total, 0)
    assert torch.equal(a, before)
    assert why_aten(lambda: op.of_sum(a, b, *given, False, False, **ports)) is None
    assert op.of_sum(a, b, *given, False, False, **ports)[1] is None


@each_kind
@pytest.mark.parametrize("how", STORED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_reads_16_bits(kind, how, dtype):
    """With a dtype for its result, x stands for float32."""
    op, given = KINDS[kind]
    x = torch.randn(3, 7, 5).to(dtype)
    ports = STORED[how] if how == "16 bits" else {**STORED[how], "dtype": torch.float32}
    near(op(x, *given, **ports), stored(op(x.float(), *given), how), how)
    assert why_aten(lambda: op(x, *given, **ports)) is None


@each_kind
def test_a_residual_beside_rows_in_another_order(kind):
    op, given = KINDS[kind]
    x, r = torch.randn(2, 6, 4, 5).transpose(1, 2), torch.randn(2, 4, 6, 5)
    assert_same(op(x, *given, residual=r), r + op(x, *given))


def test_zeros_that_come_with_the_rows_are_added_to():
    """A norm writes no border, and what it is added to is all that stands there."""
    context, numbers = OPS.row_moves_prepack(["pad"], [6]), [0, 0, 1, 1, 0, 0]
    x, r = torch.randn(2, 4, 6, 5), torch.randn(2, 4, 8, 5)
    expected = r + torch.nn.functional.pad(OPS.layer_norm(x, [5], W, B, EPS), (0, 0, 1, 1))
    assert_same(OPS.layer_norm(x, [5], W, B, EPS, context, numbers, True, r), expected)


@each_kind
def test_says_what_is_wrong_with_a_file(kind):
    op, given = KINDS[kind]
    with pytest.raises(RuntimeError, match="a scale for 1 tensor, got 2"):
        op(torch.randn(3, 5), *given, rounded=[0.1, 3.0, 0.1, 3.0])
    with pytest.raises(RuntimeError, match="bfloat16, float16 or float32"):
        op(torch.randn(3, 5), *given, dtype=torch.int32)
