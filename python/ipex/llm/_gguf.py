"""Reads GGUF files, the format of llama.cpp. Blocks of integers stay integers: they become codes, scales and offsets.

Nothing of a file is believed: every count and offset is compared with what there is. Its tables are mapped while they
are read, and tensors are read piece by piece: pages of a mapping would count as memory of this process.
"""

from __future__ import annotations

import mmap
import os
import struct
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..quantization._weight_only_module import in_halves
from ._codes import Codes

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_MOST_DIMENSIONS = 4


# --- blocks: rows of bytes in; codes [blocks, numbers], scales and offsets [blocks, groups] out ---


def _halves(blocks: Tensor, first: int, count: int = 1) -> Tensor:
    return blocks[:, first : first + 2 * count].contiguous().view(torch.float16).float()


def _nibbles(packed: Tensor) -> Tensor:
    """The lower halves of all bytes, then the upper ones."""
    return torch.cat([packed & 15, packed >> 4], 1)


def _bits(packed: Tensor) -> Tensor:
    """Each bit of each byte, the lowest first."""
    return (packed.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8) & 1).flatten(1)


_Parts = tuple[Tensor, Tensor, "Tensor | None"]


def _with_least(codes: Tensor, scale: Tensor, least: Tensor, middle: int) -> _Parts:
    """Numbers scale * code + least, of codes from 0 up. Where the scale is 0, all are the least."""
    groups = scale.shape[1]
    is_flat = scale == 0
    codes = (codes.to(torch.int8) - middle).view(len(codes), groups, -1)
    codes = codes.masked_fill(is_flat.unsqueeze(-1), 0).flatten(1)
    scale = scale.masked_fill(is_flat, 1)
    return codes, scale, torch.where(is_flat, -least, -middle - least / scale)


def _q4_0(blocks: Tensor) -> _Parts:
    return _nibbles(blocks[:, 2:]).to(torch.int8) - 8, _halves(blocks, 0), None


def _q4_1(blocks: Tensor) -> _Parts:
    return _with_least(_nibbles(blocks[:, 4:]), _halves(blocks, 0), _halves(blocks, 2), 8)


def _q5_0(blocks: Tensor) -> _Parts:
    codes = _nibbles(blocks[:, 6:]) | _bits(blocks[:, 2:6]) << 4
    return codes.to(torch.int8) - 16, _halves(blocks, 0), None


def _q5_1(blocks: Tensor) -> _Parts:
    codes = _nibbles(blocks[:, 8:]) | _bits(blocks[:, 4:8]) << 4
    return _with_least(codes, _halves(blocks, 0), _halves(blocks, 2), 16)


def _q8_0(blocks: Tensor) -> _Parts:
    return blocks[:, 2:].contiguous().view(torch.int8), _halves(blocks, 0), None


def _six_bits(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Eight scales and eight minima of 6 bits, out of 12 bytes."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = torch.cat([first & 63, third & 15 | first >> 6 << 4], 1)
    least = torch.cat([second & 63, third >> 4 | second >> 6 << 4], 1)
    return scales.float(), least.float()


def _k_blocks(blocks: Tensor, codes: Tensor, middle: int) -> _Parts:
    scales, least = _six_bits(blocks[:, 4:16])
    return _with_least(codes, _halves(blocks, 0) * scales, -_halves(blocks, 2) * least, middle)


def _chunks_of_nibbles(packed: Tensor) -> Tensor:
    """Of each 32 bytes the lower halves, then the upper ones: [blocks, 8, 32]."""
    chunks = packed.view(len(packed), 4, 1, 32)
    return torch.cat([chunks & 15, chunks >> 4], 2).view(len(packed), 8, 32)


def _q4_k(blocks: Tensor) -> _Parts:
    return _k_blocks(blocks, _chunks_of_nibbles(blocks[:, 16:].contiguous()).flatten(1), 8)


def _q5_k(blocks: Tensor) -> _Parts:
    fifth = blocks[:, 16:48].unsqueeze(1) >> torch.arange(8, dtype=torch.uint8).view(1, 8, 1) & 1
    codes = _chunks_of_nibbles(blocks[:, 48:].contiguous()) | fifth << 4
    return _k_blocks(blocks, codes.flatten(1), 16)


def _q6_k(blocks: Tensor) -> _Parts:
    count = len(blocks)
    low = blocks[:, :128].reshape(count, 2, 1, 64)
    low = torch.cat([low & 15, low >> 4], 2).view(count, 2, 4, 32)
    high = blocks[:, 128:192].reshape(count, 2, 1, 32) >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(4, 1) & 3
    codes = (low | high << 4).flatten(1).to(torch.int8) - 32
    scales = blocks[:, 192:208].contiguous().view(torch.int8).float()
    return codes, _halves(blocks, 208) * scales, None


@dataclass(frozen=True)
class _Format:
    name: str
    numbers: int  # of a block
    size: int  # of a block, in bytes
    bits: int = 0  # of a code; 0 for floats
    group_size: int = 0
    parts: Callable[[Tensor], _Parts] | None = None
    dtype: torch.dtype | None = None


_FORMATS = {
    0: _Format("F32", 1, 4, dtype=torch.float32),
    1: _Format("F16", 1, 2, dtype=torch.float16),
    30: _Format("BF16", 1, 2, dtype=torch.bfloat16),
    2: _Format("Q4_0", 32, 18, 4, 32, _q4_0),
    3: _Format("Q4_1", 32, 20, 4, 32, _q4_1),
    6: _Format("Q5_0", 32, 22, 8, 32, _q5_0),
    7: _Format("Q5_1", 32, 24, 8, 32, _q5_1),
    8: _Format("Q8_0", 32, 34, 8, 32, _q8_0),
    12: _Format("Q4_K", 256, 144, 4, 32, _q4_k),
    13: _Format("Q5_K", 256, 176, 8, 32, _q5_k),
    14: _Format("Q6_K", 256, 210, 8, 16, _q6_k),
}


_NUMBERS_AT_ONCE = 1 << 19  # become codes: what is needed on the way is many times as large, and stays in the caches


@dataclass(frozen=True)
class _Place:
    format: _Format
    shape: tuple[int, ...]  # as torch has it
    offset: int

    @property
    def size(self) -> int:
        return prod(self.shape) // self.format.numbers * self.format.size


class GGUF:
    """A file: `fields` by key, and the tensors by name."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self._next = 0
        self.fields: dict[str, Any] = {}
        self._places: dict[str, _Place] = {}
        try:
            self._map = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
        except ValueError:
            self._refuse("an empty file")
        with self._map:
            self._read_tables()

    def names(self) -> list[str]:
        """Return the names of the tensors."""
        return list(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of a tensor, as torch has them."""
        return self._places[name].shape

    def size(self, name: str) -> int:
        """Return how many bytes of the file a tensor takes."""
        return self._places[name].size

    def tensor(self, name: str) -> Tensor | Codes:
        """Return a tensor: floats as they are, integers as codes."""
        place = self._places[name]
        form = place.format
        if form.dtype is not None:
            return self._bytes(place.offset, place.size).view(form.dtype).view(place.shape).detach()
        assert form.parts is not None
        blocks, step = place.size // form.size, max(_NUMBERS_AT_ONCE // form.numbers, 1)
        parts: list[Tensor | None] = []
        for first in range(0, blocks, step):
            count = min(step, blocks - first)
            plain, *of_groups = form.parts(
                self._bytes(place.offset + first * form.size, count * form.size).view(count, form.size)
            )
            own = [in_halves(plain) if form.bits == 4 else plain, *of_groups]
            if first == 0:
                parts = [None if one is None else one.new_empty((blocks, one.shape[1])) for one in own]
            for whole, one in zip(parts, own):
                if whole is not None and one is not None:
                    whole[first : first + count].copy_(one)
        rows = (prod(place.shape[:-1]), -1)
        codes, scales, offsets = (None if whole is None else whole.view(rows) for whole in parts)
        assert codes is not None
        assert scales is not None
        return Codes(codes, scales, offsets, form.bits, form.group_size)

    def _bytes(self, begin: int, size: int) -> Tensor:
        read, done = bytearray(size), 0
        while done < size:  # a call of the system reads 2 GiB at most
            count = os.preadv(self._file, [memoryview(read)[done:]], begin + done)
            if count == 0:
                self._refuse(f"one that was cut short to {begin + done} bytes while it was read")
            done += count
        return torch.frombuffer(read, dtype=torch.uint8)

    def _refuse(self, what: str) -> Any:
        raise ValueError(
            f"ipex.llm: expected a whole GGUF file at '{self.path}', got {what}. It is damaged, or another format."
        )

    def _take(self, size: int) -> bytes:
        if size < 0 or size > len(self._map) - self._next:
            self._refuse(f"one that ends within its tables, after {len(self._map)} bytes")
        self._next += size
        return self._map[self._next - size : self._next]

    def _number(self, code: str) -> Any:
        return struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))[0]

    def _text(self) -> str:
        return self._take(self._number("Q")).decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _TEXT:
            return self._text()
        if kind != _LIST:
            self._refuse(f"a field of kind {kind}")
        of, count = self._number("I"), self._number("Q")
        if count > len(self._map):
            self._refuse(f"a list of {count}")
        if of in _NUMBERS:
            code = _NUMBERS[of]
            return list(struct.unpack(f"<{count}{code}", self._take(count * struct.calcsize("<" + code))))
        if of != _TEXT:
            self._refuse(f"a list of kind {of}")
        return [self._text() for _ in range(count)]

    def _read_tables(self) -> None:
        if self._take(4) != b"GGUF":
            self._refuse("other first bytes than GGUF")
        if (version := self._number("I")) not in (2, 3):
            self._refuse(f"version {version}, not 2 or 3")
        tensors, fields = self._number("Q"), self._number("Q")
        if max(tensors, fields) > len(self._map):
            self._refuse(f"{tensors} tensors and {fields} fields")
        for _ in range(fields):
            key = self._text()
            self.fields[key] = self._value(self._number("I"))
        found = [(self._text(), *self._tensor_info()) for _ in range(tensors)]
        alignment = self.fields.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
            self._refuse(f"an alignment of {alignment}")
        data = -(-self._next // alignment) * alignment
        for name, form, shape, offset in found:
            place = _Place(form, shape, data + offset)
            if place.offset + place.size > len(self._map):
                self._refuse(f"one of {len(self._map)} bytes, in which {name} ends at {place.offset + place.size}")
            self._places[name] = place

    def _tensor_info(self) -> tuple[_Format, tuple[int, ...], int]:
        dimensions = self._number("I")
        if not 0 < dimensions <= _MOST_DIMENSIONS:
            self._refuse(f"a tensor of {dimensions} dimensions")
        shape = tuple(self._number("Q") for _ in range(dimensions))[::-1]
        kind, offset = self._number("I"), self._number("Q")
        if kind not in _FORMATS:
            known = ", ".join(form.name for form in _FORMATS.values())
            raise ValueError(f"ipex.llm: expected tensors of {known} in '{self.path}', got ggml's type {kind}.")
        form = _FORMATS[kind]
        if prod(shape) == 0 or shape[-1] % form.numbers:
            self._refuse(f"{form.name} of {shape}, no whole blocks")
        return form, shape, offset
