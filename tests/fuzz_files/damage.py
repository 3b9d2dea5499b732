"""A saved model with some of its numbers, texts and storages changed, and its checksums made right again."""

from __future__ import annotations

import io
import pickletools
import random
import struct
import zipfile
import zlib
from pathlib import Path

from aot_file import AotFile

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
        if storages and draw.random() < 0.2:
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


def damaged_aot(path: Path, draw: random.Random) -> bytes:
    """The same for a file with packed weights: its tables, and the pickles of its archive, where nothing may move."""
    file = AotFile(path)
    pieces = file.pieces()
    for _ in range(draw.choice((1, 1, 2, 3))):
        if draw.random() < 0.5:
            _change_a_pickle_in_place(file, draw)
        else:
            section = file.sections[draw.choice(("tensors", "forms", "target", "tensors", "forms", "packed"))]
            place = section.offset + draw.randrange(max(section.size, 8) // 8) * 8
            (value,) = struct.unpack_from("<q", file.content, place)
            struct.pack_into("<q", file.content, place, _number(value, draw))
    for section, own in pieces.items():
        file.sign_around(section, own)
    return file.signed()


def _change_a_pickle_in_place(file: AotFile, draw: random.Random) -> None:
    archive = file.sections["archive"]
    with zipfile.ZipFile(io.BytesIO(file.bytes_of(archive))) as records:
        found = [info for info in records.infolist() if info.filename.endswith(".pkl") and info.file_size > 8]
        info = draw.choice(found)
        data = records.read(info)
    changed = _pickle(data, draw, keeps_length=True)
    start = archive.offset + bytes(file.bytes_of(archive)).index(data)
    file.content[start : start + len(data)] = changed
    # Both headers of the record hold its CRC.
    old, new = (struct.pack("<I", zlib.crc32(text)) for text in (data, changed))
    file.content[archive.offset : archive.end] = file.bytes_of(archive).replace(old, new)


def _storage(data: bytes, draw: random.Random) -> bytes:
    first = draw.randrange(len(data) + 1)
    if draw.random() < 0.3:
        return data[:first]
    return data[:first] + bytes(draw.choice((0, 255, 127)) for _ in data[first : first + 64]) + data[first + 64 :]


def _pickle(data: bytes, draw: random.Random, keeps_length: bool = False) -> bytes:
    found = []  # place, how long it is, and what may stand there
    ops = list(pickletools.genops(data))
    for (op, value, place), (_, _, end) in zip(ops, ops[1:]):
        if op.name in CHANGED:
            found.append((place, end, value))
    for _ in range(20 if found else 0):
        place, end, value = draw.choice(found)
        changed = _same_opcode(data[place:end], draw) if keeps_length else _written(value, draw)
        if not keeps_length or len(changed) == end - place:
            return data[:place] + changed + data[end:]
    return data


def _same_opcode(op: bytes, draw: random.Random) -> bytes:
    """The op with an argument of the same length."""
    if len(op) == 1:
        return draw.choice((b"\x88", b"\x89", b"N"))
    if op[:1] == b"X":
        text = op[5:].decode()
        return op[:5] + draw.choice((text.swapcase(), text.replace("1", "7"), text.replace("a", "e"))).encode()
    last = draw.randrange(1, len(op))
    return op[:last] + bytes([draw.choice((0, 1, 2, 127, 128, 255))]) + op[last + 1 :]


def _number(value: int, draw: random.Random) -> int:
    number = draw.choice((*EDGES, value + 1, value - 1, -value, 2 * value, draw.randrange(-4, 70)))
    return max(min(number, 2**63 - 1), -(2**63))


def _written(value: object, draw: random.Random) -> bytes:
    if isinstance(value, bool) or value is None:
        return draw.choice((b"\x88", b"\x89", b"N"))
    if isinstance(value, int):
        number = _number(value, draw)
        if -(2**31) <= number < 2**31:
            return b"J" + struct.pack("<i", number)
        return b"\x8a\x08" + struct.pack("<q", number)
    if isinstance(value, float):
        return b"G" + struct.pack(">d", draw.choice((0.0, -1.0, 1e308, 1e-308, float("nan"), float("inf"), -value)))
    text = str(value)
    other = draw.choice((text[:-1], text + "x", "", text.swapcase(), text.replace("1", "7"))).encode()
    return b"X" + struct.pack("<I", len(other)) + other
