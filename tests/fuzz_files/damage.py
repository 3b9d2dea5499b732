"""A saved model with some of its numbers, texts and storages changed, and its checksums made right again."""

from __future__ import annotations

import io
import pickletools
import random
import struct
import zipfile

# Opcodes of pickles that are changed: numbers, texts, flags.
CHANGED = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "NEWTRUE", "NEWFALSE", "NONE")
EDGES = (0, 1, -1, 2, 3, 255, 2**15, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63))


def damaged(model: bytes, draw: random.Random) -> bytes:
    """One to three changes, most of them to the numbers of contexts and tensors."""
    with zipfile.ZipFile(io.BytesIO(model)) as archive:
        records = {info.filename: archive.read(info) for info in archive.infolist()}
    for _ in range(draw.choice((1, 1, 2, 3))):
        pickles = [name for name in records if name.endswith(".pkl")]
        storages = [name for name in records if "/data/" in name or "/constants/" in name]
        if storages and draw.random() < 0.15:
            name = draw.choice(storages)
            records[name] = _storage(records[name], draw)
        else:
            name = max(pickles, key=lambda n: len(records[n])) if draw.random() < 0.7 else draw.choice(pickles)
            records[name] = _pickle(records[name], draw)
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w", zipfile.ZIP_STORED) as archive:
        for name, data in records.items():
            archive.writestr(name, data)
    return changed.getvalue()


def _storage(data: bytes, draw: random.Random) -> bytes:
    """As long as before: torch.jit.load takes a shorter record for a whole one, and what is behind it for numbers."""
    first = draw.randrange(len(data) + 1)
    return data[:first] + bytes(draw.choice((0, 255, 127)) for _ in data[first : first + 64]) + data[first + 64 :]


def _pickle(data: bytes, draw: random.Random) -> bytes:
    found = []  # place, how long it is, and what may stand there
    ops = list(pickletools.genops(data))
    for i, ((op, value, place), (_, _, end)) in enumerate(zip(ops, ops[1:])):
        # torch.jit.load takes a storage to be as long as it is said to be, and reads and saves what is behind it.
        is_length_of_storage = any(later.name == "BINPERSID" for later, _, _ in ops[i + 1 : i + 4])
        if op.name in CHANGED and not is_length_of_storage:
            found.append((place, end, value))
    if not found:
        return data
    place, end, value = draw.choice(found)
    return data[:place] + _written(value, draw) + data[end:]


def _written(value: object, draw: random.Random) -> bytes:
    if isinstance(value, bool) or value is None:
        return draw.choice((b"\x88", b"\x89", b"N"))
    if isinstance(value, int):
        number = draw.choice((*EDGES, value + 1, value - 1, -value, 2 * value, draw.randrange(-4, 70)))
        if -(2**31) <= number < 2**31:
            return b"J" + struct.pack("<i", number)
        return b"\x8a\x08" + struct.pack("<q", max(min(number, 2**63 - 1), -(2**63)))
    if isinstance(value, float):
        return b"G" + struct.pack(">d", draw.choice((0.0, -1.0, 1e308, 1e-308, float("nan"), float("inf"), -value)))
    text = str(value)
    other = draw.choice((text[:-1], text + "x", "", text.swapcase(), text.replace("1", "7"))).encode()
    return b"X" + struct.pack("<I", len(other)) + other
