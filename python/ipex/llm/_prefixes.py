"""Keeps keys and values of texts that were read, for others that begin with the same words.

They lie in blocks of words, each known by its words and by the block before it: a text finds its beginning block by
block. Memory is bounded, and the block that was used least recently goes first. A block counts as used when one behind
it is, and as the later of the two: so the end of a beginning goes before its start.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from torch import Tensor

from ._cache import RoomyLayer

BLOCK = 16  # words


@dataclass(frozen=True)
class _Block:
    number: int  # by which those behind it know it
    parts: list[Tensor]  # of each layer

    @property
    def bytes(self) -> int:
        return sum(part.nbytes for part in self.parts)


class Prefixes:
    """Beginnings of texts, in at most so many bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.bytes = 0
        self._numbers = count(1)
        # By the number of the block before (0: none) and the words; those used last are at the end.
        self._blocks: OrderedDict[tuple[int, tuple[int, ...]], _Block] = OrderedDict()

    def take(self, words: list[int], layers: list[RoomyLayer]) -> int:
        """Write what is kept of the beginning of a text into empty layers. Return how many words that are."""
        path = self._path(words[:-1])  # the last one is read: it has the logits
        self._use(path)
        if path:
            for layer, parts in zip(layers, zip(*(self._blocks[key].parts for key in path))):
                layer.append(parts, BLOCK)
        return len(path) * BLOCK

    def keep(self, words: list[int], layers: list[RoomyLayer], row: int) -> None:
        """Keep the words of a text, the last ones in this row of the layers."""
        path = self._path(words)
        self._use(path)  # so that room is made of others
        before = self._blocks[path[-1]].number if path else 0
        for own in _blocks_of(words[len(path) * BLOCK :]):
            begin = layers[0].length - len(words) + len(path) * BLOCK
            block = _Block(next(self._numbers), [layer.part(row, begin, BLOCK) for layer in layers])
            if (len(path) + 1) * block.bytes > self._most_bytes:
                break
            while self.bytes + block.bytes > self._most_bytes:
                _, gone = self._blocks.popitem(last=False)
                self.bytes -= gone.bytes
            path.append((before, own))
            self._blocks[path[-1]] = block
            self.bytes += block.bytes
            before = block.number
        self._use(path)

    def _path(self, words: list[int]) -> list[tuple[int, tuple[int, ...]]]:
        """The keys of the blocks with which a text begins."""
        path: list[tuple[int, tuple[int, ...]]] = []
        before = 0
        for own in _blocks_of(words):
            block = self._blocks.get((before, own))
            if block is None:
                break
            path.append((before, own))
            before = block.number
        return path

    def _use(self, path: list[tuple[int, tuple[int, ...]]]) -> None:
        for key in reversed(path):
            self._blocks.move_to_end(key)


def _blocks_of(words: list[int]) -> Iterator[tuple[int, ...]]:
    return (tuple(words[begin : begin + BLOCK]) for begin in range(0, len(words) - BLOCK + 1, BLOCK))
