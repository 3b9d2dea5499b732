"""Layer norms that read or give 16 bits and compute in float32: what the casts around them give, bit by bit."""

from __future__ import annotations

import pytest
import torch

import ipex  # noqa: F401
from support import assert_same, why_aten

OPS = torch.ops.ipex
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
EPS = 1e-5


@pytest.mark.parametrize("shape", [(5, 32), (3, 4, 768), (2, 1, 65), (7,)])
@pytest.mark.parametrize("read", DTYPES)
@pytest.mark.parametrize("given", DTYPES)
def test_is_what_the_casts_give(shape, read, given):
    x, weight, bias = torch.randn(shape).to(read), torch.randn(shape[-1]), torch.randn(shape[-1])
    expected = OPS.layer_norm(x.float(), shape[-1:], weight, bias, EPS).to(given)
    assert why_aten(lambda: OPS.layer_norm(x, shape[-1:], weight, bias, EPS, dtype=given)) is None
    assert_same(OPS.layer_norm(x, shape[-1:], weight, bias, EPS, dtype=given), expected, 0)


def test_rows_in_another_order():
    x = torch.randn(2, 5, 3, 40).bfloat16().transpose(1, 2)
    expected = OPS.layer_norm(x.float(), (40,), None, None, EPS).bfloat16()
    assert_same(OPS.layer_norm(x, (40,), None, None, EPS, dtype=torch.bfloat16), expected, 0)


@pytest.mark.parametrize("given", DTYPES[1:])
def test_of_a_sum(given):
    a, b, weight, bias = torch.randn(3, 4, 70), torch.randn(3, 4, 70), torch.randn(70), torch.randn(70)
    y, total = OPS.layer_norm.of_sum(a, b, (70,), weight, bias, EPS, True)
    lowered, same = OPS.layer_norm.of_sum(a, b, (70,), weight, bias, EPS, True, dtype=given)
    assert_same(lowered, y.to(given), 0)
    assert_same(same, total, 0)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38])
def test_rows_that_are_not_finite(value):
    x = torch.randn(3, 40).bfloat16()
    x[1, 3] = value
    expected = torch.nn.functional.layer_norm(x.float(), (40,)).bfloat16()
    assert why_aten(lambda: OPS.layer_norm(x, (40,), None, None, EPS, dtype=torch.bfloat16)) == "a row is not finite"
    assert_same(OPS.layer_norm(x, (40,), None, None, EPS, dtype=torch.bfloat16), expected, 0)


def test_other_dtypes_stay():
    x = torch.randn(3, 40, dtype=torch.double)
    expected = torch.nn.functional.layer_norm(x, (40,))
    assert_same(OPS.layer_norm(x, (40,), None, None, EPS, dtype=torch.bfloat16), expected, 0)


def test_gradients():
    x = torch.randn(3, 40, requires_grad=True)
    y = OPS.layer_norm(x, (40,), None, None, EPS, dtype=torch.bfloat16)
    expected = torch.nn.functional.layer_norm(x, (40,)).bfloat16()
    assert_same(y.detach(), expected.detach(), 0)
    (actual,) = torch.autograd.grad(y.float().square().sum(), x)
    (wanted,) = torch.autograd.grad(expected.float().square().sum(), x)
    assert_same(actual, wanted)
