"""A cache layer of transformers whose memory has room: a step writes its keys and values behind the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

# What 8 bits a number may be kept in, and the largest of each: a row of them has a scale beside it.
LARGEST_CODES = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}
_LEAST_SCALE = torch.finfo(torch.float32).tiny
_BYTES_OF_A_SCALE = 4
ROOM = 64  # words more than are needed, and a half of these: a text that grows is copied seldom


def _coded(rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the codes of each row and its scale, both as bytes: what ipex::attend_cached writes."""
    floats = rows.float()
    scales = floats.abs().amax(-1, keepdim=True) / LARGEST_CODES[dtype]
    is_finite, counts = scales.isfinite(), scales >= _LEAST_SCALE
    codes = torch.where(is_finite & counts, floats * (1 / scales), 0)
    scales = torch.where(is_finite, scales.where(counts, 0), torch.nan)
    codes = codes.round().to(dtype) if dtype is torch.int8 else codes.to(dtype)
    return codes.view(torch.int8), scales.view(torch.int8)


class RoomyLayer(CacheLayerMixin):
    """Keys and values of one layer, in memory that is larger than they are.

    `update` is what a model's own code calls. A captured step asks for `room`, writes into what it gets, and says by
    `wrote` how many words came.
    """

    is_croppable = True

    def __init__(self, is_sliding: bool = False, codes: torch.dtype | None = None) -> None:
        super().__init__()
        self.is_sliding = is_sliding
        self.length = 0
        self.codes = codes  # what keys and values are kept in; None for floats
        # [batch, heads, room, numbers of a key and of a value]. Of a head, the keys lie before the values. With codes:
        # bytes, two scales more in a row; of a head, the scales of keys and then those of values lie before the codes.
        self._memory: Tensor | None = None
        self._key_numbers = 0

    # transformers reads these, and writes None where a text begins anew.
    @property
    def keys(self) -> Tensor | None:
        return None if self._memory is None else self._numbers(0)

    @keys.setter
    def keys(self, keys: None) -> None:
        self._memory, self.length = keys, 0

    @property
    def values(self) -> Tensor | None:
        return None if self._memory is None else self._numbers(1)

    @values.setter
    def values(self, values: None) -> None:
        self._memory, self.length = values, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take sizes from the first keys and values."""
        batch, heads, _, numbers = key_states.shape
        self.allocate(batch, (heads, numbers, value_states.shape[3]), key_states.dtype)

    def allocate(self, batch: int, sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
        """Make memory for so many heads, numbers of a key and numbers of a value, without room for a word."""
        self.dtype, self.device = dtype, torch.device("cpu")
        heads, self._key_numbers, of_value = sizes
        numbers = self._key_numbers + of_value + self._of_scales
        self._memory = torch.empty(batch, heads, 0, numbers, dtype=torch.int8 if self.codes else dtype)
        self.length = 0
        self.is_initialized = True

    @classmethod
    def of_texts(cls, texts: list[tuple[RoomyLayer, int, int]]) -> RoomyLayer:
        """Return a layer of several texts, which end together: of each, a layer, its row there, and how many words."""
        given = texts[0][0]
        result, longest = cls(given.is_sliding, given.codes), max(words for _, _, words in texts)
        result.allocate(len(texts), given.sizes, given.dtype)
        result.room(longest)
        result.length = longest
        for number, (layer, row, words) in enumerate(texts):
            for side, old in zip(result._sides(), layer._sides()):
                side[number, :, : longest - words] = 0  # nobody attends to them, but 0 * NaN is NaN
                side[number, :, longest - words : longest] = old[row, :, layer.length - words : layer.length]
        return result

    def part(self, row: int, begin: int, words: int) -> Tensor:
        """Return a copy of some words of a text, as `append` takes it."""
        return torch.cat([side[row, :, begin : begin + words].flatten() for side in self._sides()])

    def append(self, parts: Sequence[Tensor], words: int) -> None:
        """Write parts of so many words each, which lay one behind the other, into a layer of one text."""
        count = len(parts) * words
        self.room(count)
        sizes = [side.shape[1] * words * side.shape[3] for side in self._sides()]
        for side, pieces in zip(self._sides(), zip(*(part.split(sizes) for part in parts))):
            there = side[0, :, self.length : self.length + count]
            there.copy_(torch.cat([piece.view(len(there), words, -1) for piece in pieces], 1))
        self.wrote(count)

    @property
    def batch(self) -> int | None:
        """How many texts there are; None where none has begun."""
        return None if self._memory is None else self._memory.shape[0]

    @property
    def _of_scales(self) -> int:
        return 2 * _BYTES_OF_A_SCALE if self.codes else 0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Heads, numbers of a key and numbers of a value, as `allocate` takes them."""
        assert self._memory is not None
        of_value = self._memory.shape[3] - self._key_numbers - self._of_scales
        return self._memory.shape[1], self._key_numbers, of_value

    def room(self, words: int) -> Tensor:
        """Return the whole memory, with room for so many words behind those there are."""
        assert self._memory is not None
        needed = self.length + words
        if needed > self._memory.shape[2]:
            held = self._sides()
            batch, heads, _, numbers = self._memory.shape
            self._memory = self._memory.new_empty(batch, heads, (needed + needed // 2 + ROOM) // 8 * 8, numbers)
            for side, old in zip(self._sides(), held):
                side[:, :, : self.length] = old[:, :, : self.length]
        return self._memory.view(self.codes) if self.codes else self._memory

    def _sides(self) -> tuple[Tensor, ...]:
        """All memory for keys, and all for values. With codes, then that of their scales."""
        assert self._memory is not None
        room, (_, *numbers) = self._memory.shape[2], self.sizes
        before = [_BYTES_OF_A_SCALE] * 2 if self.codes else []
        parts = self._memory.flatten(2).split([room * each for each in before + numbers], 2)
        sides = [part.unflatten(2, (room, each)) for part, each in zip(parts, before + numbers)]
        return (*sides[len(before) :], *sides[: len(before)])

    def _numbers(self, side: int) -> Tensor:
        """The keys, or the values, as floats."""
        there = [each[:, :, : self.length] for each in self._sides()[side::2]]
        if self.codes is None:
            return there[0]
        codes, scales = there
        return (codes.view(self.codes).float() * scales.view(torch.float32)).to(self.dtype)

    def wrote(self, words: int) -> None:
        """Count words that were written into the room."""
        self.length = self.length + words  # in a trace a tensor, which layers share

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Keep these too, and return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        words = key_states.shape[2]
        self.room(words)
        new_sides = (key_states, value_states)
        if self.codes:
            codes, scales = zip(*(_coded(rows, self.codes) for rows in new_sides))
            new_sides = (*codes, *scales)
        for side, new in zip(self._sides(), new_sides):
            side[:, :, self.length : self.length + words] = new
        self.wrote(words)
        return self.keys, self.values  # type: ignore[return-value]

    def get_mask_sizes(self, query_length: int | Tensor) -> tuple[int, int]:
        """Return how many keys a query meets, and at which word they begin."""
        if isinstance(query_length, Tensor) and query_length.dim() == 1:
            query_length = query_length.shape[0]  # before transformers 5.4: the place of each word
        return self.length + query_length, 0  # type: ignore[return-value]  # in a trace a tensor

    def get_seq_length(self) -> int:
        """Return how many words there are."""
        return self.length

    def get_max_length(self) -> int:
        """Return that there is no bound."""
        return -1

    get_max_cache_shape = get_max_length  # its name before transformers 5.14

    def reset(self) -> None:
        """Begin a new text."""
        self.keys = self.values = None
        self.is_initialized = False

    def crop(self, words: int) -> None:
        """Forget the last -words; of a positive number, which transformers before 5.16 give, all but the first ones."""
        self.length = max(self.length + words, 0) if words <= 0 else min(self.length, words)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Put the texts into this order."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these texts, in this order."""
        self._choose(lambda kept: kept[indices.to(kept.device)])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Write each text so many times."""
        self._choose(lambda kept: kept.repeat_interleave(repeats, dim=0))

    def _choose(self, chosen: Any) -> None:
        if self._memory is not None:
            self._memory = chosen(self._memory)


def give_room(cache: DynamicCache, is_sliding: list[bool], codes: torch.dtype | None = None) -> bool:
    """Let a cache of transformers have our layers, with the words that it holds. False where it is another kind."""
    layers = len(is_sliding)
    if all(type(layer) is RoomyLayer for layer in cache.layers) and len(cache.layers) == layers:
        return True
    if type(cache) is not DynamicCache or len(cache.layers) not in (0, layers):
        return False
    # A layer that slides holds the last words alone: only an empty one can be given room.
    usual = (DynamicLayer,) if cache.get_seq_length() else (DynamicLayer, DynamicSlidingWindowLayer)
    if not all(type(layer) in usual for layer in cache.layers):
        return False
    held, cache.layers = cache.layers, [RoomyLayer(sliding, codes) for sliding in is_sliding]
    for layer, old in zip(cache.layers, held):
        if old.is_initialized and old.get_seq_length():
            layer.update(old.keys, old.values)
    return True
