"""Blocks of GGUF files, and their numbers one by one as the format is described, to compare a reader with."""

from __future__ import annotations

import random
import struct

from benchmarks.gguf_writer import TYPES

_HALVES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


def random_blocks(kind: str, count: int, seed: int) -> bytes:
    """Blocks of any bits, with scales that are numbers of a usual size."""
    draw = random.Random(seed)
    size, data = TYPES[kind][2], b""
    for _ in range(count):
        block = bytearray(draw.randbytes(size))
        for place in _HALVES.get(kind, (0,)):
            block[place : place + 2] = struct.pack("<e", draw.choice((0.0, draw.uniform(-0.02, 0.02))))
        data += bytes(block)
    return data


def _half(block: bytes, place: int) -> float:
    return struct.unpack_from("<e", block, place)[0]


def _k_scale(packed: bytes, i: int) -> tuple[int, int]:
    if i < 4:
        return packed[i] & 63, packed[i + 4] & 63
    return packed[i + 4] & 15 | packed[i - 4] >> 6 << 4, packed[i + 4] >> 4 | packed[i] >> 6 << 4


def numbers_of(kind: str, block: bytes) -> list[float]:
    """The numbers that a block stands for, each by itself."""
    found = []
    for i in range(TYPES[kind][1]):
        d = _half(block, 208 if kind == "Q6_K" else 0)
        if kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
            nibbles = block[-16:]
            code = nibbles[i % 16] >> 4 * (i // 16) & 15
            if kind[1] == "5":
                bits = struct.unpack_from("<I", block, len(block) - 20)[0]
                code |= (bits >> i & 1) << 4
            is_middle = kind.endswith("0")
            middle = 8 if kind[1] == "4" else 16
            found.append(d * (code - middle) if is_middle else d * code + _half(block, 2))
        elif kind == "Q8_0":
            found.append(d * struct.unpack_from("b", block, 2 + i)[0])
        elif kind in ("Q4_K", "Q5_K"):
            part, within = divmod(i, 32)
            scale, least = _k_scale(block[4:16], part)
            code = block[-128:][part // 2 * 32 + within] >> 4 * (part % 2) & 15
            if kind == "Q5_K":
                code |= (block[16 + within] >> part & 1) << 4
            found.append(d * scale * code - _half(block, 2) * least)
        else:
            half, rest = divmod(i, 128)
            quarter, within = divmod(rest, 32)
            low = block[64 * half + within + 32 * (quarter % 2)] >> 4 * (quarter // 2) & 15
            high = block[128 + 32 * half + within] >> 2 * quarter & 3
            scale = struct.unpack_from("b", block, 192 + i // 16)[0]
            found.append(d * scale * ((low | high << 4) - 32))
    return found
