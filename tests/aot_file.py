"""Reads a file with packed weights as docs/reference/ahead_of_time_files.md describes it, without ipex."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

PAGE, MASK, FACTOR = 4096, (1 << 64) - 1, 0x9E3779B97F4A7C15
HEADER_BYTES = 8 + 18 * 8
SECTIONS = ("archive", "packed", "target", "tensors", "forms")


@dataclass
class Piece:
    """Bytes with a checksum."""

    offset: int
    size: int
    checksum: int

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass
class Form:
    """A packed weight."""

    plain: int
    kind: str
    replaces_plain: bool
    dtype: int
    sizes: tuple[int, ...]
    piece: Piece


def _mixed(state: int, word: int) -> int:
    product = (state ^ word) * FACTOR & MASK
    return (product << 29 | product >> 35) & MASK


def checksum(data: bytes) -> int:
    """Return what the file calls the checksum of these bytes."""
    if len(data) > 1 << 20:
        pieces = (data[i : i + (1 << 20)] for i in range(0, len(data), 1 << 20))
        data = b"".join(checksum(piece).to_bytes(8, "little") for piece in pieces)
        return checksum(data)
    lanes = [FACTOR * (i + 1) & MASK for i in range(8)]
    padded = data + bytes(-len(data) % 8)
    for i, (word,) in enumerate(struct.iter_unpack("<Q", padded)):
        lanes[i % 8] = _mixed(lanes[i % 8], word)
    result = len(data)
    for lane in lanes:
        result = _mixed(result, lane)
    return result


class AotFile:
    """The tables of a file. `content` may be changed, and `signed()` gives it right checksums of header and tables."""

    def __init__(self, path: Path) -> None:
        self.content = bytearray(path.read_bytes())
        assert self.content[:8] == b"ipex-AOT"
        self.version, self.file_bytes = struct.unpack_from("<2Q", self.content, 8)
        numbers = struct.unpack_from("<15Q", self.content, 24)
        self.sections = {name: Piece(*numbers[3 * i : 3 * i + 3]) for i, name in enumerate(SECTIONS)}
        self.header_checksum = struct.unpack_from("<Q", self.content, HEADER_BYTES - 8)[0]
        self._next = 0
        self.firm_numbers: set[int] = set()  # where they stand, of the tables that were read

    def bytes_of(self, piece: Piece) -> bytes:
        return bytes(self.content[piece.offset : piece.end])

    def _number(self, is_firm: bool = True) -> int:
        """Read a number; a firm one can have no other value."""
        if is_firm:
            self.firm_numbers.add(self._next)
        (number,) = struct.unpack_from("<Q", self.content, self._next)
        self._next += 8
        return number

    def _text(self) -> bytes:
        size = self._number()
        self._next += size
        return bytes(self.content[self._next - size : self._next])

    def _piece(self, is_firm: bool = True) -> Piece:
        return Piece(self._number(), self._number(), self._number(is_firm))

    def target(self) -> list[str]:
        self._next = self.sections["target"].offset
        return [self._text().decode() for _ in range(5)]

    def tensors(self) -> dict[str, Piece]:
        self._next = self.sections["tensors"].offset
        return {self._text().decode(): self._piece(is_firm=False) for _ in range(self._number())}

    def forms(self) -> list[Form]:
        self._next = self.sections["forms"].offset
        return [self._form() for _ in range(self._number())]

    def _form(self) -> Form:
        plain, kind, _ = self._number(), self._text().decode(), self._text()
        replaces_plain, dtype = bool(self._number(False)), self._number(False)
        sizes = tuple(self._number() for _ in range(self._number()))
        return Form(plain, kind, replaces_plain, dtype, sizes, self._piece())

    def pieces(self) -> dict[str, list[Piece]]:
        """What has checksums of its own in the two sections of data."""
        return {"archive": list(self.tensors().values()), "packed": [form.piece for form in self.forms()]}

    def checksum_around(self, section: str, pieces: list[Piece]) -> int:
        """Return the checksum of what lies in none of a section's pieces."""
        begin, sums = self.sections[section].offset, b""
        for piece in [*pieces, None]:
            end = piece.offset if piece else self.sections[section].end
            sums += checksum(bytes(self.content[begin:end])).to_bytes(8, "little")
            begin = piece.end if piece else end
        return checksum(sums)

    def sign_around(self, section: str, pieces: list[Piece]) -> None:
        place = 24 + 24 * SECTIONS.index(section) + 16
        struct.pack_into("<Q", self.content, place, self.checksum_around(section, pieces))

    def signed(self) -> bytes:
        for i, name in enumerate(SECTIONS):
            if name in ("target", "tensors", "forms"):
                offset, size = struct.unpack_from("<2Q", self.content, 24 + 24 * i)
                struct.pack_into(
                    "<Q", self.content, 24 + 24 * i + 16, checksum(bytes(self.content[offset : offset + size]))
                )
        struct.pack_into("<Q", self.content, HEADER_BYTES - 8, checksum(bytes(self.content[: HEADER_BYTES - 8])))
        return bytes(self.content)
