"""Writes GGUF files, number by number as ggml's page on the format describes them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

ALIGNMENT = 32
# ggml's number of a type, numbers of a block, and its bytes.
TYPES = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22),
    "Q5_1": (7, 32, 24),
    "Q8_0": (8, 32, 34),
    "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210),
}

# A type, torch's sizes, and the bytes or what makes them.
Content = tuple[str, tuple[int, ...], "bytes | Callable[[], bytes]"]


def bytes_of(kind: str, shape: tuple[int, ...]) -> int:
    """Return how many bytes a tensor takes."""
    _, numbers, size = TYPES[kind]
    return prod(shape) // numbers * size


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _plain(value: Any) -> tuple[int, bytes]:
    """The format's number of a kind of values, and one of them."""
    if isinstance(value, str):
        return 8, _text(value)
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return 4, struct.pack("<I", value)


def _value(value: Any) -> bytes:
    if not isinstance(value, list):
        kind, content = _plain(value)
        return struct.pack("<I", kind) + content
    if all(isinstance(each, int) for each in value):  # as the types of tokens, which have a sign
        return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    (kind,) = {_plain(each)[0] for each in value}
    return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(_plain(each)[1] for each in value)


def write(path: Path, fields: dict[str, Any], tensors: dict[str, Content]) -> None:
    """Write fields and tensors."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    head += b"".join(_text(key) + _value(value) for key, value in fields.items())
    end = 0
    for name, (kind, shape, _) in tensors.items():
        begin = end + -end % ALIGNMENT
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += _text(name) + sizes + struct.pack("<IQ", TYPES[kind][0], begin)
        end = begin + bytes_of(kind, shape)
    with path.open("wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        end = 0
        for kind, shape, content in tensors.values():
            file.write(bytes(-end % ALIGNMENT) + (content if isinstance(content, bytes) else content()))
            end += -end % ALIGNMENT + bytes_of(kind, shape)
