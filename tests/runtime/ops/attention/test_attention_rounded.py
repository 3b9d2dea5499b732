"""Attention whose products round their factors to bfloat16: in BF32, and in models of 16 and of 8 bits."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import BF32_TOLERANCE, assert_round_trip, assert_same, kinds, own_thread_count, why_aten

BF32 = ipex.FP32MathMode.BF32.value
FP32 = ipex.FP32MathMode.FP32.value
multiplies_pairs = ipex.isa.has_fast_avx512_bf16() or ipex.isa.has_amx()
needs_instructions = pytest.mark.skipif(not multiplies_pairs, reason="no fast bfloat16 products")


def heads(batch: int, count: int, length: int, width: int) -> Tensor:
    return torch.randn(batch, length, count, width).transpose(1, 2)


def ours(query, key, value, mask=None, causal=False, mode=BF32, gqa=False) -> Tensor:
    return torch.ops.ipex.scaled_dot_product_attention(
        query, key, value, mask, 0.0, causal, math_mode=mode, scale=None, enable_gqa=gqa
    )


def check(query, key, value, mask=None, causal=False, gqa=False) -> None:
    expected = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, enable_gqa=gqa)
    actual = ours(query, key, value, mask, causal, gqa=gqa)
    # Scores of ordinary heads are off by about 1, times 2^-9; a weight is off by as much as that, times itself.
    assert_same(actual, expected, 2 * BF32_TOLERANCE)
    assert actual.stride() == expected.stride()
    assert why_aten(lambda: ours(query, key, value, mask, causal, gqa=gqa)) is None
    assert_same(ours(query, key, value, mask, causal, mode=FP32, gqa=gqa), expected)


@pytest.mark.parametrize("queries", [1, 3, 4, 49, 65, 200])
@pytest.mark.parametrize("keys", [1, 2, 7, 16, 65, 131])
@pytest.mark.parametrize("width", [1, 8, 33, 40, 64])
def test_sizes(queries, keys, width):
    check(*(heads(1, 2, length, width) for length in (queries, keys, keys)))


def test_masks_causality_and_other_widths():
    for queries, keys in itertools.product((5, 70), (5, 20, 71)):
        tensors = [heads(2, 4, length, 24) for length in (queries, keys, keys)]
        check(*tensors, causal=True)
        check(*tensors, torch.randn(queries, keys))
        is_open = torch.rand(2, 1, queries, keys) < 0.5
        is_open[..., 0] = True
        check(*tensors, is_open)
        check(*tensors[:2], heads(2, 4, keys, 37))
        check(tensors[0], tensors[1][:, :2], tensors[2][:, :2], gqa=True)


@needs_instructions
def test_it_rounds_where_it_may():
    tensors = [heads(1, 2, 40, 32) for _ in range(3)]
    assert not torch.equal(ours(*tensors), ours(*tensors, mode=FP32))
    op = torch.ops.ipex.scaled_dot_product_attention
    with ipex.fp32_math_mode(ipex.FP32MathMode.BF32):
        assert torch.equal(op(*tensors, None, 0.0, False, scale=None, enable_gqa=False), ours(*tensors))
        assert not torch.equal(ours(*tensors, mode=FP32), ours(*tensors))
    # Factors that bfloat16 holds, and weights of 1/64: nothing is left to round.
    query, key = torch.zeros(1, 1, 40, 32), torch.randn(1, 1, 64, 32).bfloat16().float()
    value = torch.randint(-8, 8, (1, 1, 64, 32)).float()
    torch.testing.assert_close(ours(query, key, value), value.mean(2, keepdim=True).expand(1, 1, 40, 32))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_numbers_that_are_not_finite_are_atens(bad, place):
    tensors = [heads(1, 2, 19, 16) for _ in range(3)]
    tensors[place][0, 1, 7, 3] = bad
    expected = F.scaled_dot_product_attention(*tensors)
    torch.testing.assert_close(ours(*tensors).isnan(), expected.isnan())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FC00155, 0x7F800001])
def test_every_nan_of_a_mask_is_seen(dtype, bits):
    tensors = [heads(1, 2, 40, 32).to(dtype) for _ in range(3)]
    mask = torch.zeros(40, 40)
    mask.view(torch.int32)[5, 7] = bits
    if dtype == torch.bfloat16:
        mask = (mask.view(torch.int32) >> 16).to(torch.int16).view(dtype)  # the last one is an infinity then
    expected = F.scaled_dot_product_attention(*tensors, mask)
    torch.testing.assert_close(ours(*tensors, mask).isnan(), expected.isnan())


def test_threads_give_equal_results():
    tensors = [heads(2, 3, 100, 40) for _ in range(3)]
    with own_thread_count():
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(ours(*tensors))
    assert all(torch.equal(result, results[0]) for result in results)


class Layer(nn.Module):
    """Attention, as one op or spelled out."""

    def __init__(self, is_one_op: bool) -> None:
        super().__init__()
        self.joint, self.is_one_op = nn.Linear(32, 96), is_one_op

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.joint(x).chunk(3, -1))
        if self.is_one_op:
            return F.scaled_dot_product_attention(q, k, v)
        return torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v


OPTIONS = [
    {"dtype": torch.bfloat16},
    {"fp32_math_mode": ipex.FP32MathMode.BF32},
    {"fp32_math_mode": ipex.FP32MathMode.FP32},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("is_one_op", [False, True])
def test_a_model_says_what_it_wants(tmp_path, options, is_one_op):
    model, x = Layer(is_one_op).eval(), torch.randn(2, 21, 32)
    optimized = ipex.jit_optimize(torch.jit.trace(model, x), **options)
    name = "ipex::scaled_dot_product_attention" if is_one_op else "ipex::attention"
    assert kinds(optimized)[name] == 1
    (decision,) = (d for d in ipex.explain(optimized) if d.pass_name == "pin_attention")
    assert decision.reason == ("FP32" if options.get("fp32_math_mode") == ipex.FP32MathMode.FP32 else "BF32")
    with torch.no_grad():
        tolerance = 1e-5 if decision.reason == "FP32" else 0.02
        assert_same(optimized(x), model(x), tolerance)
    assert_round_trip(optimized, tmp_path, x)
