"""Attention between layers of bfloat16: `jit_optimize(.., dtype=)`."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from anchored import trace
from low_precision import assert_no_worse, check_lowered
from support import assert_round_trip, kinds


class Layer(nn.Module):
    """One of a transformer: `form` says how it spells attention, `change` what becomes of queries before it."""

    def __init__(self, form: str, change=lambda q: q):
        super().__init__()
        self.form, self.change = form, change
        self.query, self.key, self.value, self.out = (nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (f(x).view(*x.shape[:2], 4, 8).transpose(1, 2) for f in (self.query, self.key, self.value))
        q = self.change(q)
        if self.form == "whole":
            y = F.scaled_dot_product_attention(q, k, v, mask)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(8)
            y = (scores if mask is None else scores + mask).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(x.shape))


def overwritten(q: Tensor) -> Tensor:
    q[..., :1] = 0
    return q


def casts(optimized: torch.jit.ScriptModule) -> tuple[int, int]:
    found = kinds(optimized)
    return found["ipex::lower_precision"], found["ipex::restore_precision"]


@pytest.mark.parametrize("form", ["whole", "spelled"])
def test_fires(tmp_path, form):
    x = torch.randn(2, 7, 32)
    optimized = check_lowered(Layer(form), x, torch.bfloat16)
    assert casts(optimized) == (1, 1)  # of the input and of the result
    assert_round_trip(optimized, tmp_path, x)


@pytest.mark.parametrize("form", ["whole", "spelled"])
@pytest.mark.parametrize("lowest", [-1e4, torch.finfo(torch.float32).min])
def test_masks_stay_float32(form, lowest):
    layer, x = Layer(form).eval(), torch.randn(2, 7, 32)
    mask = torch.zeros(2, 1, 1, 7).masked_fill(torch.arange(7) > 4, lowest) + torch.randn(7)
    optimized = ipex.jit_optimize(trace(layer, x, mask), dtype=torch.bfloat16)
    assert casts(optimized) == (1, 1)
    with torch.no_grad():
        exact, stock = layer(x, mask), layer.bfloat16()(x.bfloat16(), mask.bfloat16().clamp(min=-1e38))
        assert_no_worse(optimized(x, mask), stock, exact, torch.bfloat16)


@pytest.mark.parametrize("form", ["whole", "spelled"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_where_eager_has_it(form, bad):
    layer, x = Layer(form).eval(), torch.randn(2, 7, 32)
    optimized = ipex.jit_optimize(trace(layer, x), dtype=torch.bfloat16)
    x[1, 3, 5] = bad
    with torch.no_grad():
        expected, actual = layer(x), optimized(x)
    assert actual.dtype == torch.float32
    assert torch.equal(actual.isnan(), expected.isnan())
    torch.testing.assert_close(actual[0], expected[0], rtol=0, atol=0.05)


@pytest.mark.parametrize(
    ("dtype", "change"),
    [
        (torch.bfloat16, lambda q: q * 1.5 + q.flip(-1)),  # not only moved
        (torch.bfloat16, overwritten),
        (torch.float16, lambda q: q),
    ],
)
@pytest.mark.parametrize("form", ["whole", "spelled"])
def test_declines(form, dtype, change):
    layer, x = Layer(form, change).eval(), torch.randn(2, 7, 32)
    optimized = ipex.jit_optimize(trace(layer, x), dtype=dtype)
    assert casts(optimized) == (2, 4)
    with torch.no_grad():
        torch.testing.assert_close(optimized(x), layer(x), rtol=0, atol=0.05)


def test_float32_models_are_left_alone():
    optimized = ipex.jit_optimize(trace(Layer("whole").eval(), torch.randn(2, 7, 32)))
    assert casts(optimized) == (0, 0)
