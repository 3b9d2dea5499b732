"""Texts whose keys and values lie in blocks of a cache: what is new is written, and each token sees its own text."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from support import assert_same

OPS = torch.ops.ipex
BLOCK, BLOCKS = 32, 64
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch."))
# Of a text: the tokens that are new, and those before them.
RAGGED = ((1, 0), (1, 700), (3, 40), (0, 5), (40, 0), (9, 31), (33, 600), (1, 31), (8, 250))


class Batch:
    """Texts in a cache whose other rows are NaN, each in blocks of its own, in any order."""

    def __init__(self, texts, heads=2, shared=3, numbers=64, of_value=64, dtype=torch.float32, window=0, seed=0):
        draw = torch.Generator().manual_seed(seed)

        def rows(*sizes):
            return torch.randn(*sizes, generator=draw).to(dtype)

        self.texts, self.window = texts, window
        lengths = [new + past for new, past in texts]
        self.lengths = torch.tensor(lengths, dtype=torch.int32)
        self.begins = torch.tensor([0, *(new for new, _ in texts)], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        most = max(math.ceil(length / BLOCK) for length in lengths)
        free = torch.randperm(BLOCKS, generator=draw).to(torch.int32)
        self.blocks = torch.full((len(texts), most + 1), -7, dtype=torch.int32)
        for t, length in enumerate(lengths):
            count = math.ceil(length / BLOCK)
            self.blocks[t, :count], free = free[:count], free[count:]
        self.keys = [rows(length, heads, numbers) for length in lengths]
        self.values = [rows(length, heads, of_value) for length in lengths]
        self.query = rows(int(self.begins[-1]), heads * shared, numbers)
        self.kept = torch.full((BLOCKS, heads, BLOCK, numbers + of_value), math.nan, dtype=dtype)
        places = [self.places(t) for t in range(len(texts))]
        for t, (_, past) in enumerate(texts):
            block, row = places[t][:past] // BLOCK, places[t][:past] % BLOCK
            for side, given in zip(self.sides(), (self.keys, self.values)):
                side[block, :, row] = given[t][:past]
        new = [slice(past, None) for _, past in texts]
        self.slots = torch.cat([p[n] for p, n in zip(places, new)])
        self.key, self.value = (torch.cat([x[n] for x, n in zip(all_, new)]) for all_ in (self.keys, self.values))

    def places(self, text: int) -> Tensor:
        token = torch.arange(int(self.lengths[text]))
        return self.blocks[text].long()[token // BLOCK] * BLOCK + token % BLOCK

    def sides(self) -> tuple[Tensor, Tensor]:
        """Of each block and head, the keys and the values behind them."""
        numbers = self.query.shape[2]
        keys, values = self.kept.flatten(2).split([BLOCK * numbers, BLOCK * (self.kept.shape[3] - numbers)], 2)
        return keys.unflatten(2, (BLOCK, -1)), values.unflatten(2, (BLOCK, -1))

    def attend(self, **changed) -> Tensor:
        names = ("kept", "query", "key", "value", "slots", "blocks", "begins", "lengths")
        given = {name: getattr(self, name) for name in names}
        return OPS.attend_paged(*(given | {"scale": None, "window": self.window} | changed).values())

    def expected(self) -> Tensor:
        """By PyTorch, in floats, text by text."""
        results = []
        for t, (new, past) in enumerate(self.texts):
            place = torch.arange(past, past + new).unsqueeze(1)
            token = torch.arange(past + new)
            sees = (token <= place) & ((token > place - self.window) if self.window else torch.tensor(True))
            begin = int(self.begins[t])
            query = self.query[begin : begin + new]
            heads = [x.float().transpose(0, 1).unsqueeze(0) for x in (query, self.keys[t], self.values[t])]
            results.append(F.scaled_dot_product_attention(*heads, sees, enable_gqa=True).squeeze(0).transpose(0, 1))
        return torch.cat(results).to(self.query.dtype).contiguous()


@DTYPES
@pytest.mark.parametrize("shared", [1, 2, 3, 9])
@pytest.mark.parametrize("window", [0, 20])
def test_a_ragged_batch(dtype, shared, window):
    batch = Batch(RAGGED, shared=shared, dtype=dtype, window=window)
    assert_same(batch.attend(), batch.expected(), TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize(("numbers", "of_value"), [(80, 96), (24, 40), (5, 7)])
def test_any_width(dtype, numbers, of_value):
    batch = Batch(RAGGED, numbers=numbers, of_value=of_value, dtype=dtype)
    assert_same(batch.attend(), batch.expected(), TOLERANCE[dtype])


def test_new_tokens_are_written_and_nothing_else():
    batch = Batch(RAGGED)
    batch.slots[2] = -1  # the second token of the third text
    before, sides = batch.kept.clone(), batch.sides()
    batch.attend()
    written = batch.slots[batch.slots >= 0]
    for side, given in zip(sides, (batch.key, batch.value)):
        assert torch.equal(side[written // BLOCK, :, written % BLOCK], given[batch.slots >= 0])
        side[written // BLOCK, :, written % BLOCK] = math.nan
    assert torch.equal(batch.kept.isnan(), before.isnan())


def test_without_keys_and_values_the_cache_stays():
    batch = Batch(RAGGED)
    result = batch.attend()
    before = batch.kept.clone()
    assert torch.equal(batch.attend(key=None, value=None), result)
    assert torch.equal(batch.kept.nan_to_num(9), before.nan_to_num(9))


def test_tokens_in_a_row_that_holds_more():
    """As a product of query, key and value leaves them."""
    batch = Batch(RAGGED)
    all_three = batch.query, batch.key, batch.value
    joined = torch.cat([x.flatten(1) for x in all_three], 1)
    parts = joined.split([x[0].numel() for x in all_three], 1)
    query, key, value = (part.unflatten(1, x.shape[1:]) for part, x in zip(parts, all_three))
    assert_same(batch.attend(query=query, key=key, value=value), batch.expected())
    gaps = torch.stack([batch.query, batch.query], 3)[..., 0]
    assert_same(batch.attend(query=gaps), batch.expected())


def test_a_text_has_the_same_result_in_any_batch():
    batch = Batch(RAGGED)
    result = batch.attend()
    for t in range(len(RAGGED)):
        begin, end = batch.begins[t : t + 2].tolist()
        alone = batch.attend(
            **{name: getattr(batch, name)[begin:end] for name in ("query", "key", "value", "slots")},
            blocks=batch.blocks[t : t + 1],
            begins=torch.tensor([0, end - begin], dtype=torch.int32),
            lengths=batch.lengths[t : t + 1],
        )
        assert torch.equal(alone, result[begin:end])


def test_tokens_of_no_text_are_zero():
    batch = Batch(RAGGED)
    count = int(batch.begins[-1])
    padded = {name: F.pad(getattr(batch, name), (0, 0, 0, 0, 0, 4)) for name in ("query", "key", "value")}
    result = batch.attend(**padded, slots=F.pad(batch.slots, (0, 4), value=-1))
    assert_same(result[:count].contiguous(), batch.expected())
    assert not result[count:].any()


@pytest.mark.parametrize("number", [math.nan, math.inf, 1e38])
@pytest.mark.parametrize("side", ["query", "key", "value"])
def test_numbers_that_are_not_ordinary(number, side):
    """aten computes the texts that have one, and what aten gives is not finite in other texts."""
    batch = Batch(((1, 40), (20, 40)), heads=1, shared=1)
    getattr(batch, side)[5, 0, 3] = number
    for t, (new, past) in enumerate(batch.texts):
        for all_, given in ((batch.keys, batch.key), (batch.values, batch.value)):
            all_[t][past:] = given[int(batch.begins[t]) :][:new]
    assert_same(batch.attend(), batch.expected())


FITS = Batch(((2, 40), (20, 0)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kept": FITS.kept.transpose(1, 2)}, "expected a contiguous cache"),
        ({"kept": FITS.kept.to(torch.int8)}, "expected a contiguous cache"),
        ({"kept": FITS.kept[0]}, "expected a contiguous cache"),
        ({"query": FITS.query.half()}, "that fits a cache"),
        ({"query": FITS.query[:, :5]}, "that fits a cache"),
        ({"query": FITS.query[0]}, "that fits a cache"),
        ({"query": FITS.query.repeat(1, 1, 2)}, "that fits a cache"),
        ({"query": FITS.query[:-1], "key": None, "value": None}, "expected text 1 within 21 tokens"),
        ({"key": None}, "expected keys and values, or neither"),
        ({"key": FITS.key[1:]}, "expected keys and values of 22 tokens"),
        ({"value": FITS.value[:, :1]}, "expected keys and values of 22 tokens"),
        ({"value": FITS.value[..., :-1]}, "expected keys and values of 22 tokens"),
        ({"slots": FITS.slots.int()}, "expected int64 slots of 22 tokens"),
        ({"slots": FITS.slots[1:]}, "expected int64 slots of 22 tokens"),
        ({"slots": FITS.slots + BLOCKS * BLOCK}, "expected a slot below 2048"),
        ({"blocks": FITS.blocks.long()}, "expected int32 blocks"),
        ({"blocks": FITS.blocks[:1]}, "expected int32 blocks"),
        ({"blocks": FITS.blocks[:, :1]}, "expected text 0 within 22 tokens, and within 1 blocks"),
        ({"blocks": FITS.blocks + BLOCKS}, "expected a block below 64"),
        ({"blocks": FITS.blocks - BLOCKS}, "expected a block below 64"),
        ({"begins": FITS.begins[1:]}, "expected int32 blocks"),
        ({"begins": FITS.begins.flip(0)}, "expected text 0 within"),
        ({"begins": FITS.begins - 1}, "expected text 0 within"),
        ({"begins": FITS.begins + 1}, "expected text 1 within"),
        ({"lengths": FITS.lengths.long()}, "expected int32 blocks"),
        ({"lengths": FITS.lengths * 0 + 1}, "expected text 0 within"),
        ({"window": -1}, "expected a window"),
        ({"scale": math.inf}, "a small scale"),
    ],
)
def test_what_does_not_fit_is_refused(changed, message):
    with pytest.raises(RuntimeError, match=message):
        FITS.attend(**changed)


def test_no_tokens():
    empty = FITS.query[:0]
    none = {"begins": FITS.begins * 0, "slots": FITS.slots[:0], "key": FITS.key[:0], "value": FITS.value[:0]}
    assert FITS.attend(query=empty, **none).shape == (0, 6, 64)
