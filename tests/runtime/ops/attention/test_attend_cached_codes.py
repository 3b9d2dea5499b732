"""Keys and values that are kept as 8-bit codes with a scale for each row: attention reads them as they lie."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from runtime.ops.attention.test_attend_cached import NOTHING, OPS, heads, visible
from support import assert_same

LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}
CODES = pytest.mark.parametrize("codes", LARGEST, ids=lambda dtype: str(dtype).removeprefix("torch."))


def room_for(batch: int, count: int, room: int, numbers: int, of_value: int, codes: torch.dtype) -> torch.Tensor:
    """Memory of random bytes."""
    draw = torch.Generator().manual_seed(5)
    sizes = (batch, count, room, numbers + of_value + 8)
    return torch.randint(-128, 128, sizes, dtype=torch.int8, generator=draw).view(codes)


def parts(kept: torch.Tensor, numbers: int) -> tuple[torch.Tensor, ...]:
    """Codes of keys and of values, and the scales of both."""
    _batch, _count, room, row = kept.shape
    of_value = row - 8 - numbers
    of_keys, of_values, keys, values = (
        kept.view(torch.int8).flatten(2).split([room * 4, room * 4, room * numbers, room * of_value], 2)
    )
    return (
        keys.view(kept.dtype).unflatten(2, (room, numbers)),
        values.view(kept.dtype).unflatten(2, (room, of_value)),
        of_keys.view(torch.float32),
        of_values.view(torch.float32),
    )


def rounded(rows: torch.Tensor, codes: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales, as PyTorch rounds."""
    scales = rows.abs().amax(-1) / LARGEST[codes]
    numbers = rows * (1 / scales).unsqueeze(-1)
    return (numbers.round() if codes is torch.int8 else numbers).to(codes), scales


def numbers_of(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return codes.float() * scales.unsqueeze(-1)


def attend(kept, query, key, value, past, window=0, attended=NOTHING):
    number = torch.tensor(past)
    mask = OPS.cache_mask(query[:, 0], number, attended, window)
    return OPS.attend_cached(kept, query, key, value, number, mask, None, window)


@CODES
@pytest.mark.parametrize(("words", "past"), [(1, 0), (1, 9), (3, 0), (3, 9), (4, 9), (33, 0), (33, 9)])
@pytest.mark.parametrize("window", [0, 4])
@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("shared", [1, 3, 4])
@pytest.mark.parametrize("numbers", [8, 20, 64])
def test_against_pytorch_on_what_is_kept(codes, words, past, window, padding, shared, numbers):
    batch, of_value = 2, numbers + 8
    kept = room_for(batch, 2, (past + words + 5) // 4 * 4 + 4, numbers, of_value, codes)
    key, value = heads(batch, 2, past + words, numbers, 2), heads(batch, 2, past + words, of_value, 3)
    query = heads(batch, 2 * shared, words, numbers, 1)
    if past:
        attend(kept, query[:, :, :1].expand(-1, -1, past, -1), key[:, :, :past], value[:, :, :past], 0)
    before = [part.clone() for part in parts(kept, numbers)]
    attended = NOTHING
    if padding:
        attended = torch.ones(batch, past + words, dtype=torch.bool)
        attended[0, :padding] = False
    result = attend(kept, query, key[:, :, past:], value[:, :, past:], past, window, attended)
    # The memory: the new words stand behind the others, and nothing else has changed.
    kept_parts, here = parts(kept, numbers), slice(past, past + words)
    for part, old in zip(kept_parts, before):
        part, old = part.view(torch.int8), old.view(torch.int8)
        scale = part.shape[2] // before[0].shape[2]  # bytes of a scale, where it is one
        assert torch.equal(part[:, :, : past * scale], old[:, :, : past * scale])
        assert torch.equal(part[:, :, (past + words) * scale :], old[:, :, (past + words) * scale :])
    for side, rows in enumerate((key, value)):
        found, scales = kept_parts[side][:, :, here], kept_parts[side + 2][:, :, here]
        expected, of_rows = rounded(rows[:, :, here], codes)
        assert torch.equal(scales, of_rows)
        if codes is torch.int8:  # a product with the inverse may be rounded before: half a code may go either way
            assert (rows[:, :, here] - numbers_of(found, scales)).abs().le(scales.unsqueeze(-1) * 0.50001).all()
            assert (found.float() - expected.float()).abs().sum() <= 2
        else:
            assert torch.equal(found.float(), expected.float())
    keys, values = (numbers_of(kept_parts[i], kept_parts[i + 2])[:, :, : past + words] for i in (0, 1))
    expected = F.scaled_dot_product_attention(
        query, keys, values, visible(words, past, window, attended, batch), enable_gqa=shared > 1
    )
    assert_same(result.contiguous(), expected.contiguous())


@CODES
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("words", [1, 5, 20])
def test_queries_of_16_bits(codes, dtype, words):
    past = 6
    kept = room_for(1, 2, 32, 32, 32, codes)
    key, value = heads(1, 2, past + words, 32, 2).to(dtype), heads(1, 2, past + words, 32, 3).to(dtype)
    query = heads(1, 4, words, 32, 1).to(dtype)
    attend(kept, query[:, :, :1].expand(-1, -1, past, -1), key[:, :, :past], value[:, :, :past], 0)
    result = attend(kept, query, key[:, :, past:], value[:, :, past:], past)
    assert result.dtype is dtype
    of_keys, of_values, scales, value_scales = parts(kept, 32)
    assert torch.equal(scales[:, :, : past + words], rounded(key.float(), codes)[1])
    keys, values = numbers_of(of_keys, scales), numbers_of(of_values, value_scales)
    expected = F.scaled_dot_product_attention(
        *(query.float(), keys[:, :, : past + words], values[:, :, : past + words]),
        visible(words, past, 0, NOTHING, 1),
        enable_gqa=True,
    )
    torch.testing.assert_close(result.float(), expected, rtol=2**-7, atol=2**-7)


@CODES
@pytest.mark.parametrize("words", [1, 20])
def test_how_far_from_floats(codes, words):
    """No farther than what rounding may change: of scores, and so of weights, and of values."""
    past, numbers = 60, 64
    kept = room_for(1, 2, 80, numbers, numbers, codes)
    query, key = heads(1, 2, words, numbers, 1), heads(1, 2, past + words, numbers, 2)
    value = heads(1, 2, past + words, numbers, 3)
    attend(kept, query[:, :, :1].expand(-1, -1, past, -1), key[:, :, :past], value[:, :, :past], 0)
    result = attend(kept, query, key[:, :, past:], value[:, :, past:], past)
    exact = F.scaled_dot_product_attention(query, key, value, visible(words, past, 0, NOTHING, 1))
    # Half a step: of integers everywhere the same, of floats of so many bits of mantissa at most so much of the number.
    half = {torch.int8: 0.5 / 127, torch.float8_e4m3fn: 2.0**-4, torch.float8_e5m2: 2.0**-3}[codes]
    is_integer = codes is torch.int8
    steps = key.abs().amax(-1, keepdim=True).expand_as(key) if is_integer else key.abs()
    score = (query.abs() @ (steps * half).transpose(-1, -2)).amax(-1, keepdim=True) / math.sqrt(numbers)
    largest = value.abs().amax()
    bound = largest * ((2 * score).expm1() + half)
    assert ((result - exact).abs() <= bound).all()
    assert (result - exact).abs().max() > 0
    # And where errors do not all point one way, by much less.
    assert (result - exact).norm() / exact.norm() < {torch.int8: 2 / 127}.get(codes, 2 * half)


@pytest.mark.parametrize("codes", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_numbers_of_all_sizes_are_rounded_as_pytorch_rounds(codes):
    """Also those below the least normal number of the format, and halves between two numbers."""
    kept = room_for(1, 1, 512, 64, 64, codes)
    draw = torch.Generator().manual_seed(0)
    key = torch.randn(1, 1, 512, 64, generator=draw) * torch.rand(1, 1, 512, 64, generator=draw).mul(-40).exp2()
    value = torch.randint(-(2**12), 2**12, (1, 1, 512, 64), generator=draw) * 2.0**-9
    key[..., 0], value[..., 0] = 1, LARGEST[codes]  # the scale of values is 1
    attend(kept, heads(1, 1, 512, 64, 1), key, value, 0)
    found = parts(kept, 64)[0].float().abs()
    assert ((found > 0) & (found < torch.finfo(codes).tiny)).any()
    for side, rows in enumerate((key, value)):
        expected, scales = rounded(rows, codes)
        assert torch.equal(parts(kept, 64)[side + 2], scales)
        assert torch.equal(parts(kept, 64)[side].float(), expected.float())


@CODES
def test_rows_of_zeros_and_tiny_ones_are_zeros(codes):
    kept = room_for(1, 1, 8, 16, 16, codes)
    key, value = heads(1, 1, 3, 16, 2), heads(1, 1, 3, 16, 3)
    key[0, 0, 1], value[0, 0, 2] = 0, 1e-42
    result = attend(kept, heads(1, 1, 3, 16, 1), key, value, 0)
    of_keys, of_values, scales, value_scales = parts(kept, 16)
    assert scales[0, 0, 1] == 0
    assert value_scales[0, 0, 2] == 0
    assert not of_keys.float()[0, 0, 1].any()
    assert not of_values.float()[0, 0, 2].any()
    assert result.isfinite().all()


@CODES
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("words", [1, 12])
def test_what_is_not_finite_reaches_who_sees_it(codes, bad, words):
    kept = room_for(1, 2, 16, 16, 16, codes)
    query, key, value = heads(1, 2, words, 16, 1), heads(1, 2, words, 16, 2), heads(1, 2, words, 16, 3)
    value[0, 1, words // 2, 3] = bad
    result = attend(kept, query, key, value, 0)
    assert parts(kept, 16)[3][0, 1, words // 2].isnan()
    assert result[0, 0].isfinite().all()
    assert result[0, 1, words // 2 :].isnan().all()


@CODES
def test_rows_that_lie_apart(codes):
    """As they come out of a product: heads of a word side by side."""
    key, value = (heads(2, 6, 4, 16, seed).transpose(1, 2) for seed in (2, 3))
    query = heads(2, 6, 4, 16, 1).transpose(1, 2)
    found, expected = (room_for(2, 4, 8, 16, 16, codes) for _ in range(2))
    result = attend(found, query, key, value, 0)
    assert_same(result.contiguous(), attend(expected, *(x.contiguous() for x in (query, key, value)), 0).contiguous())
    assert torch.equal(found.view(torch.int8), expected.view(torch.int8))


@CODES
def test_what_attention_of_ours_declines_reads_the_same_numbers(codes):
    kept = [room_for(1, 2, 8, 16, 16, codes) for _ in range(2)]
    x = [heads(1, 2, 5, 16, seed) for seed in (1, 2, 3)]
    expected = attend(kept[0], *x, 0)
    result = attend(kept[1], x[0].clone().requires_grad_(), *x[1:], 0)
    assert result.requires_grad
    assert_same(result.detach().contiguous(), expected.contiguous())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"past": torch.tensor(7)}, "expected room for keys of .* behind 7 words"),
        ({"kept": torch.zeros(1, 2, 8, 16, dtype=torch.int8)}, "expected room for keys"),  # without scales
        ({"kept": torch.zeros(1, 2, 8, 24, dtype=torch.uint8)}, "expected room for keys"),
        ({"kept": torch.zeros(1, 2, 6, 24, dtype=torch.int8)}, "a multiple of 4 words of codes, .* got 6 at 0"),
        ({"kept": torch.zeros(400, dtype=torch.int8)[2:386].view(1, 2, 8, 24)}, "of codes, .* got 8 at 2"),
        ({"key": torch.ones(1, 2, 2, 8, dtype=torch.int64)}, "float32 or 16 bits beside codes, got torch.LongTensor"),
        ({"value": torch.ones(1, 2, 2, 8).to_mkldnn()}, "expected room for keys|beside codes"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    fits = {
        "kept": torch.zeros(1, 2, 8, 24, dtype=torch.int8),
        "query": torch.randn(1, 2, 2, 8),
        "key": torch.randn(1, 2, 2, 8),
        "value": torch.randn(1, 2, 2, 8),
        "past": torch.tensor(1),
        "mask": NOTHING,
    }
    OPS.attend_cached(*fits.values(), None, 0)
    with pytest.raises(RuntimeError, match=message):
        OPS.attend_cached(*{**fits, **arguments}.values(), None, 0)
