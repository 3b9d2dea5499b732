"""Keys and values are written behind those that are kept, and queries attend to what they may see."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from support import assert_same

NOTHING = torch.empty(0, dtype=torch.bool)
OPS = torch.ops.ipex


def heads(batch: int, count: int, words: int, numbers: int, seed: int) -> torch.Tensor:
    return torch.randn(batch, count, words, numbers, generator=torch.Generator().manual_seed(seed))


def visible(words: int, past: int, window: int, attended: torch.Tensor, batch: int) -> torch.Tensor:
    """Which of all words each of the new ones sees, one by one."""
    rows = torch.zeros(batch, 1, words, past + words, dtype=torch.bool)
    for b in range(batch):
        for i in range(words):
            for j in range(past + words):
                place = past + i
                counts = attended.numel() == 0 or bool(attended[b, j])
                is_near = window == 0 or j > place - window
                rows[b, 0, i, j] = j == place or (j < place and counts and is_near)
    return rows


def sides(kept: torch.Tensor, numbers: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys of each head, and the values that lie behind them."""
    batch, count, room, both = kept.shape
    flat = kept.view(batch, count, -1)
    return (
        flat[..., : room * numbers].view(batch, count, room, numbers),
        flat[..., room * numbers :].view(batch, count, room, both - numbers),
    )


@pytest.mark.parametrize("words", [1, 3])
@pytest.mark.parametrize("past", [0, 1, 9])
@pytest.mark.parametrize("window", [0, 4])
@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("shared", [1, 3])
def test_against_a_mask_that_is_written_out(words, past, window, padding, shared):
    batch, numbers, of_value = 2, 8, 16
    kept = heads(batch, 2, past + words + 5, numbers + of_value, 0)
    before = kept.clone()
    query, key = heads(batch, 2 * shared, words, numbers, 1), heads(batch, 2, words, numbers, 2)
    value = heads(batch, 2, words, of_value, 3)
    attended = NOTHING
    if padding:
        attended = torch.ones(batch, past + words, dtype=torch.bool)
        attended[0, :padding] = False
    number = torch.tensor(past)
    mask = OPS.cache_mask(query[:, 0], number, attended, window)
    result = OPS.attend_cached(kept, query, key, value, number, mask, None, window)
    # The memory: the new words stand behind the others, and nothing else has changed.
    keys, values = sides(kept, numbers)
    for side, old, new in zip((keys, values), sides(before, numbers), (key, value)):
        assert torch.equal(side[:, :, past : past + words], new)
        assert torch.equal(side[:, :, :past], old[:, :, :past])
        assert torch.equal(side[:, :, past + words :], old[:, :, past + words :])
    all_keys, all_values = keys[:, :, : past + words], values[:, :, : past + words]
    expected = F.scaled_dot_product_attention(
        query, all_keys, all_values, visible(words, past, window, attended, batch), enable_gqa=shared > 1
    )
    assert_same(result.contiguous(), expected.contiguous())


@pytest.mark.parametrize("words", [1, 3])
def test_strides_that_say_nothing_and_rows_with_gaps(words):
    """A dimension of one element may have any stride; numbers of a word need not be neighbours."""
    kept, number = heads(2, 1, 10, 16, 0), torch.tensor(4)
    inputs = [heads(2, count, words, 8, seed) for seed, count in enumerate((2, 1, 1))]
    expected = OPS.attend_cached(kept.clone(), *inputs, number, NOTHING, None, 0)
    odd = kept.clone().as_strided(kept.shape, (160, 5, 16, 1))
    gaps = [x.mT.contiguous().mT for x in inputs]
    assert_same(OPS.attend_cached(odd, *gaps, number, NOTHING, None, 0).contiguous(), expected.contiguous())


def test_no_mask_where_none_is_needed():
    words, past = torch.zeros(2, 5), torch.tensor(0)
    assert OPS.cache_mask(words, past, NOTHING, 0).numel() == 0
    assert OPS.cache_mask(words, past, NOTHING, 5).numel() == 0
    assert OPS.cache_mask(words, past, NOTHING, 4).shape == (1, 1, 5, 5)
    assert OPS.cache_mask(words[:, :1], torch.tensor(9), NOTHING, 4).numel() == 0
    assert OPS.cache_mask(words, torch.tensor(2), NOTHING, 0).shape == (1, 1, 5, 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"past": torch.tensor(9)}, "expected room for keys of .* behind 9 words"),
        ({"past": torch.tensor(-1)}, "expected words in past, got -1"),
        ({"past": torch.tensor(2**62)}, "expected room for keys"),
        ({"past": torch.tensor([1, 2])}, "expected one number of int64 in past"),
        ({"past": torch.tensor(1.0)}, "expected one number of int64 in past"),
        ({"kept": torch.randn(1, 2, 10, 15)}, "expected room for keys"),
        ({"kept": torch.randn(2, 2, 10, 16)}, "expected room for keys"),
        ({"kept": torch.randn(1, 10, 2, 16).transpose(1, 2)}, "with strides"),  # a copy would be written
        ({"value": torch.randn(1, 2, 3, 8)}, "expected room for keys"),
        ({"key": torch.randn(1, 2, 8)}, "expected room for keys"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    fits = {
        "kept": torch.randn(1, 2, 10, 16),
        "query": torch.randn(1, 2, 2, 8),
        "key": torch.randn(1, 2, 2, 8),
        "value": torch.randn(1, 2, 2, 8),
        "past": torch.tensor(1),
        "mask": NOTHING,
    }
    OPS.attend_cached(*fits.values(), None, 0)
    with pytest.raises(RuntimeError, match=message):
        OPS.attend_cached(*{**fits, **arguments}.values(), None, 0)
