"""ipex::scaled_dot_product_attention against aten's: values, strides, and what is left to aten."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from low_precision import assert_no_worse, both_dtypes
from support import assert_same, check_against_eager, kinds, own_thread_count, why_aten

INF = math.inf


def ours(*arguments, **options) -> Tensor:
    return call(torch.ops.ipex.scaled_dot_product_attention, *arguments, **options)


def call(op, query, key, value, mask=None, dropout=0.0, causal=False, scale=None, gqa=False) -> Tensor:
    return op(query, key, value, mask, dropout, causal, scale=scale, enable_gqa=gqa)


def check(*arguments, reason: str | None = None, **options) -> None:
    with torch.no_grad():
        expected = call(F.scaled_dot_product_attention, *arguments, **options)
        actual = ours(*arguments, **options)
        assert_same(actual, expected)
        assert actual.stride() == expected.stride()
        said = why_aten(lambda: ours(*arguments, **options))
    assert (said is None) == (reason is None), said
    assert reason is None or reason in str(said)


def heads(batch: int, count: int, length: int, width: int) -> Tensor:
    return torch.randn(batch, length, count, width).transpose(1, 2)


def inputs(queries: int = 9, keys: int = 13, width: int = 16, batch: int = 2, count: int = 3) -> list[Tensor]:
    return [heads(batch, count, length, width) for length in (queries, keys, keys)]


# One and a few queries, a block of them, some blocks; less than a register, less than a panel of keys, some panels.
@pytest.mark.parametrize("queries", [1, 3, 4, 49, 64, 65, 200])
@pytest.mark.parametrize("keys", [1, 7, 16, 65, 130])
@pytest.mark.parametrize("width", [1, 8, 40, 64])
def test_sizes(queries, keys, width):
    check(*inputs(queries, keys, width, batch=1, count=2))


@pytest.mark.parametrize("sizes", [(5, 5), (70, 70), (70, 20), (20, 70), (2, 9), (130, 130)])
def test_causal(sizes):
    check(*inputs(*sizes), causal=True)


def test_more_keys_than_a_block_of_depth_holds():
    check(*inputs(30, 2000, 32, batch=1))
    check(*inputs(1, 2000, 32, batch=1))


MANY_KEYS = [1100, 1153, 2000]


@pytest.mark.parametrize("keys", MANY_KEYS)
@pytest.mark.parametrize("width", [24, 64])
def test_blocks_of_keys(keys, width):
    query, key, value = inputs(70, keys, width, batch=1)
    check(query, key, value[..., : width - 7])
    check(*inputs(keys, keys, width, batch=1, count=1), causal=True)
    check(query, key, value, torch.randn(70, keys))


@pytest.mark.parametrize("keys", MANY_KEYS)
def test_blocks_of_keys_that_are_closed(keys):
    query, key, value = inputs(70, keys, 16, batch=1)
    mask = torch.zeros(70, keys)
    for query_number in range(70):  # the first, the last, all but one
        mask[query_number, : query_number * 14] = -INF
        mask[query_number, keys - query_number :] = -INF
    mask[5] = -INF
    mask[5, keys // 2] = 3
    check(query, key, value, mask)
    mask[40] = -INF
    check(query, key, value, mask, reason="sees no key")


@pytest.mark.parametrize("at", [0, 700, 1199])
@pytest.mark.parametrize("number", [math.nan, INF, 1e38])
def test_blocks_of_keys_with_numbers_that_are_not_ordinary(at, number):
    for which in range(3):
        tensors = inputs(70, 1200, 16, batch=1)
        tensors[which][0, 1, at % tensors[which].size(2), 3] = number
        with torch.no_grad():
            assert_same(ours(*tensors), F.scaled_dot_product_attention(*tensors))


@pytest.mark.parametrize("growth", [1e-2, 1e2, -1e2])
def test_scores_that_grow_from_block_to_block(growth):
    query, key, value = inputs(70, 1500, 16, batch=1)
    check(query, key, value, torch.linspace(0, growth, 1500).expand(70, 1500))


SHAPES = [(9, 13), (9, 1), (1, 13), (3, 9, 13), (2, 1, 1, 13), (2, 3, 9, 13), (1, 3, 1, 13)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("queries", [9, 1])
def test_masks(shape, queries):
    shape = tuple(queries if size == 9 else size for size in shape)
    tensors = inputs(queries)
    check(*tensors, torch.randn(shape))
    open_somewhere = torch.rand(shape) < 0.5
    open_somewhere[..., 0] = True
    check(*tensors, open_somewhere)
    check(*tensors, torch.zeros(shape).masked_fill(~open_somewhere, torch.finfo().min))


def test_masks_that_are_laid_out_otherwise():
    mask = torch.randn(13, 9).t()
    check(*inputs(), mask)
    check(*inputs(), torch.randn(1, 1, 9, 1).expand(2, 3, 9, 13))


def test_a_triangle_as_a_mask():
    for lowest in (-INF, torch.finfo().min):
        check(*inputs(150, 150), torch.full((150, 150), lowest).triu(1))
        check(*inputs(150, 150), torch.full((150, 150), lowest).tril(-1))


@pytest.mark.parametrize("queries", [1, 9, 100])
@pytest.mark.parametrize("number", [math.nan, INF, -INF, 1e38])
def test_numbers_that_are_not_ordinary(queries, number):
    for which in range(3):
        tensors = inputs(queries, 100)
        tensors[which][0, 1, 0, 3] = number
        check(*tensors, reason="not finite")
        check(*tensors, torch.zeros(queries, 100), reason="not finite")
    mask = torch.zeros(1, 1, 1, 100)
    mask[..., 3] = number
    check(*inputs(queries, 100), mask, reason=None if number in (-INF, 1e38) else "not finite")


@pytest.mark.parametrize("queries", [1, 9])
def test_nan_behind_the_mask(queries):
    query, key, value = inputs(queries, 100)
    mask = torch.zeros(queries, 100)
    mask[:, 50:] = -INF
    for tensor in (key, value):
        tensor[0, 0, 99, 0] = math.nan
        check(query, key, value, mask, reason="not finite")


@pytest.mark.parametrize("queries", [1, 9])
def test_a_query_that_sees_no_key(queries):
    mask = torch.zeros(2, 1, queries, 13)
    mask[0, 0, 0] = -INF
    check(*inputs(queries), mask, reason="sees no key")
    mask[0, 0, 0] = torch.finfo().min  # it sees all alike
    check(*inputs(queries), mask)


def test_layouts():
    query, key, value = inputs()
    check(query.contiguous(), key, value.contiguous())
    check(query, key[:, :1].expand(key.shape), value[:, :, :1].expand(value.shape))
    joined = torch.randn(2, 9, 3, 3, 16).permute(2, 0, 3, 1, 4)
    check(*joined.unbind(0))
    check(torch.randn(9, 2, 3, 16).permute(1, 2, 0, 3), key, value)
    check(torch.randn(3, 9, 2, 16).permute(2, 0, 1, 3), key, value)
    check(query[:, :, :1].contiguous(), key, value)
    check(*(t[..., ::2] for t in inputs()))
    check(query, key, value[..., :8])


@pytest.mark.parametrize("queries", [1, 9, 70])
def test_other_ranks_than_four(queries):
    for batch in ((3,), (2, 3, 4), (2, 1, 2, 3)):
        tensors = [torch.randn(*batch, length, 16) for length in (queries, 13, 13)]
        check(*tensors)
        check(*tensors[:2], torch.randn(*batch, 13, 8))
        check(*tensors, torch.randn(queries, 13))
        open_somewhere = torch.rand(batch[-1], queries, 13) < 0.5
        open_somewhere[..., 0] = True
        check(*tensors, open_somewhere)
        check(*tensors, causal=True)
    # Windows: heads lie behind them in memory, and in front of them in the product.
    joined = torch.randn(2, 5, queries, 3, 4, 8).permute(3, 0, 4, 1, 2, 5)
    check(*joined.unbind(0))
    check(*joined.unbind(0), torch.zeros(2, 1, 5, queries, queries), reason="more dimensions than heads of a batch")


def test_what_aten_computes():
    query, key, value = inputs()
    check(query.double(), key.double(), value.double(), reason="float32")
    check(*(t[0, 0] for t in inputs()), reason="no heads of one rank")
    check(query, key[0], value[0], reason="no heads of one rank")
    check(query[:0], key[:0], value[:0], reason="empty")
    check(query, key[:, :1], value, reason="do not fit")
    with torch.autocast("cpu", torch.bfloat16):
        check(query, key, value, reason="autocast")


@pytest.mark.parametrize("sizes", [(2, 2), (5, 1, 1, 1, 1), (3, 3, 1, 1)])
def test_masks_that_aten_refuses(sizes):
    query, key, value = inputs()
    mask = torch.zeros(*sizes)
    with pytest.raises(RuntimeError) as expected:
        call(F.scaled_dot_product_attention, query, key, value, mask)
    with pytest.raises(RuntimeError) as actual:
        ours(query, key, value, mask)
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]


def check_16_bits(tensors: list[Tensor], mask: Tensor | None = None, **options) -> None:
    """By our kernels: no worse than aten."""
    with torch.no_grad():
        stock = call(F.scaled_dot_product_attention, *tensors, mask, **options)
        wide = None if mask is None else mask if mask.dtype == torch.bool else mask.double()
        exact = call(F.scaled_dot_product_attention, *(t.double() for t in tensors), wide, **options)
        actual = ours(*tensors, mask, **options)
        assert why_aten(lambda: ours(*tensors, mask, **options)) is None
    assert (actual.dtype, actual.stride()) == (stock.dtype, stock.stride())
    assert_no_worse(actual, stock, exact, stock.dtype, times=1)


def in_dtype(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    return [tensor.to(dtype) for tensor in tensors]


@both_dtypes
@pytest.mark.parametrize("queries", [1, 3, 4, 65, 200])
@pytest.mark.parametrize("keys", [1, 7, 16, 130])
@pytest.mark.parametrize("width", [1, 8, 40, 64, 128])
def test_16_bits(dtype, queries, keys, width):
    tensors = in_dtype(inputs(queries, keys, width, batch=1, count=2), dtype)
    check_16_bits(tensors)
    check_16_bits(tensors, torch.randn(queries, keys).to(dtype))
    check_16_bits(tensors, torch.randn(queries, keys) < 5)
    if queries <= keys:
        check_16_bits(tensors, causal=True)


@both_dtypes
@pytest.mark.parametrize("queries", [1, 9])
def test_16_bits_in_other_layouts(dtype, queries):
    query, key, value = in_dtype(inputs(queries, count=6), dtype)
    check_16_bits([query, key[:, :2], value[:, :2]], gqa=True)
    check_16_bits([query.contiguous(), key, value.contiguous()])
    check_16_bits([t[..., ::2] for t in (query, key, value)])
    check_16_bits([query, key, value[..., :8]])
    check_16_bits([t[:, 0] for t in (query, key, value)])
    check_16_bits([query, key, value], scale=0.3)


@both_dtypes
@pytest.mark.parametrize("queries", [1, 9])
def test_16_bits_that_are_not_ordinary(dtype, queries):
    for which in range(3):
        for number in (math.nan, INF):
            tensors = in_dtype(inputs(queries, 100), dtype)
            tensors[which][0, 1, 0, 3] = number
            stock = call(F.scaled_dot_product_attention, *tensors)
            torch.testing.assert_close(ours(*tensors), stock, equal_nan=True)
            torch.testing.assert_close(
                ours(*tensors, causal=True),
                call(F.scaled_dot_product_attention, *tensors, causal=True),
                equal_nan=True,
            )


def test_heads_that_are_shared():
    query, key, value = inputs(count=6)
    for count in (1, 2, 3, 6):
        check(query, key[:, :count], value[:, :count], gqa=True)


@pytest.mark.parametrize("causal", [False, True])
def test_one_head_of_keys_that_is_broadcast(causal):
    query, key, value = inputs(count=6)
    check(query, key[:, :1], value[:, :1], causal=causal)
    check(query.transpose(1, 2).contiguous().transpose(1, 2), key[:, :1], value[:, :1], causal=causal)
    check_16_bits(in_dtype([query, key[:, :1], value[:, :1]], torch.bfloat16), causal=causal)


def test_scale():
    for scale in (0.0, -1.0, 0.3, 40.0):
        check(*inputs(), scale=scale)
    check(*inputs(), scale=1e9, reason="scale")


def test_gradients_are_those_of_eager():
    tensors = [t.requires_grad_() for t in inputs()]
    expected = torch.autograd.grad(F.scaled_dot_product_attention(*tensors).sum(), tensors)
    assert_same(torch.autograd.grad(ours(*tensors).sum(), tensors), expected)


def test_any_number_of_threads_gives_the_same():
    tensors = inputs(200, 200, batch=1)
    results = []
    with own_thread_count():
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            results.append(ours(*tensors))
    assert all(torch.equal(result, results[0]) for result in results)


class Attention(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.causal = nn.Linear(32, 96), nn.Linear(32, 32), causal

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(x.shape[0], -1, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("causal", [False, True])
def test_a_model(causal):
    x = torch.randn(2, 11, 32)
    optimized = check_against_eager(Attention(causal), x, also=(torch.randn(1, 5, 32), torch.randn(3, 1, 32)))
    assert kinds(optimized)["ipex::scaled_dot_product_attention"] == 1
    again = ipex.jit_optimize(torch.jit.script(Attention(causal).eval()))
    assert kinds(again)["ipex::scaled_dot_product_attention"] == 1


def test_every_step_is_covered_by_each_family():
    """Odd sizes together, so that no block, panel or register is full."""
    for queries, keys, width in itertools.product((5, 67), (19, 83), (5, 17, 33)):
        check(*inputs(queries, keys, width), torch.randn(2, 1, queries, keys))


def test_keys_without_heads_are_refused():
    query, key = torch.ones(1, 2, 3, 4), torch.ones(1, 0, 3, 4)
    with pytest.raises(RuntimeError, match="expected heads of keys and values for enable_gqa, got none"):
        torch.ops.ipex.scaled_dot_product_attention(query, key, key, None, 0.0, False, None, True)
