"""Matrices of codes with scales: those of a file, or rounded here; and the table of embeddings that reads one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..quantization import WeightOnlyLinear

GROUP_SIZE = 32  # of what is rounded here


@dataclass(frozen=True)
class Codes:
    """A matrix [outputs, inputs] of `(codes - offsets) * scales`; scales and offsets are [outputs, groups]."""

    codes: Tensor  # int8
    scales: Tensor
    offsets: Tensor | None
    bits: int
    group_size: int

    def numbers(self) -> Tensor:
        """Return the matrix in float32."""
        shape = self.codes.shape
        codes = self.codes.view(*self.scales.shape, self.group_size).float()
        if self.offsets is not None:
            codes -= self.offsets.unsqueeze(-1)
        return (codes * self.scales.unsqueeze(-1)).view(shape)

    def rows(self, order: Tensor) -> Codes:
        """Return it with its rows in another order."""
        offsets = None if self.offsets is None else self.offsets[order]
        return Codes(self.codes[order], self.scales[order], offsets, self.bits, self.group_size)


class EmbeddingOfCodes(nn.Module):
    """A table of embeddings whose rows are codes with scales."""

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None

    def __init__(self, table: Codes, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = table.codes.shape
        self.group_size, self.dtype = table.group_size, dtype
        self.register_buffer("codes", table.codes)
        self.register_buffer("scales", table.scales)
        self.register_buffer("offsets", table.offsets)

    def forward(self, words: Tensor) -> Tensor:
        """Return the rows of these words."""
        codes = self.codes[words].float().unflatten(-1, (-1, self.group_size))
        if self.offsets is not None:
            codes = codes - self.offsets[words].unsqueeze(-1)
        rows: Tensor = (codes * self.scales[words].unsqueeze(-1)).flatten(-2).to(self.dtype)
        return rows


# How much of a group's range its codes are spread over: the best of these, by the sum of squares.
_SHARES = {4: (1.0, 0.92, 0.84), 8: (1.0,)}


def rounded(weight: Tensor, bits: int, group_size: int, symmetric: bool) -> Codes:
    """Round a matrix whose rows are whole numbers of groups."""
    groups = weight.detach().float().unflatten(1, (-1, group_size))
    largest = 2 ** (bits - 1) - 1
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    if symmetric:
        high = torch.maximum(-low, high)
        low = -high
    middle, half = (low + high) / 2, (high - low) / 2
    best: tuple[Tensor, ...] | None = None
    for share in _SHARES[bits]:
        steps = 2 * largest if symmetric else 2 * largest + 1
        scale = (2 * half * share / steps).clamp(min=torch.finfo(torch.float32).tiny)
        # The code of the middle is 0, or between -1 and 0 where there is a code more below.
        offset = -middle / scale - (0 if symmetric else 0.5)
        codes = (groups / scale + offset).round().clamp(-largest - (not symmetric), largest)
        error = (((codes - offset) * scale - groups) ** 2).sum(-1, keepdim=True)
        found = (codes, scale, offset, error)
        if best is None:
            best = found
        else:
            is_better = error < best[3]
            best = tuple(torch.where(is_better, new, old) for new, old in zip(found, best))
    assert best is not None
    codes, scale, offset, _ = best
    # detach: a view would keep what it is a view of when it lets go of its own memory.
    offsets = None if symmetric else offset.squeeze(-1).detach()
    return Codes(codes.to(torch.int8).flatten(1).detach(), scale.squeeze(-1).detach(), offsets, bits, group_size)


def linear_of(codes: Codes, bias: Tensor | None) -> WeightOnlyLinear:
    """Return a linear with this weight."""
    made = WeightOnlyLinear(
        codes.codes,
        codes.scales,
        codes.offsets,
        bias=None if bias is None else bias.detach().float(),
        bits=codes.bits,
        group_size=codes.group_size,
    )
    return made.eval()


class Rounding:
    """Codes in place of a model's linears, embedding and head. `undo` puts back what was there."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._undo: list[Callable[[], None]] = []

    def undo(self) -> None:
        """Put every layer back."""
        while self._undo:
            self._undo.pop()()

    def linears(self, bits: int, group_size: int, symmetric: bool) -> list[str]:
        """Round the linears. Return the names of those that stay: their rows are no whole groups."""
        left = []
        for name, module in list(self._model.named_modules()):
            if type(module) is not nn.Linear:
                continue
            size = group_size or module.in_features
            if module.in_features % size or size % 8:
                left.append(name)
                continue
            parent, _, own = name.rpartition(".")
            codes = rounded(module.weight, bits, size, symmetric)
            self._put(partial(setattr, self._model.get_submodule(parent), own), module, linear_of(codes, module.bias))
        return left

    def ends(self) -> None:
        """Round the embedding and the head to 8 bits: fewer cost much there."""
        model = self._model
        table, head = model.get_input_embeddings(), model.get_output_embeddings()
        has_table = type(table) is nn.Embedding and table.embedding_dim % GROUP_SIZE == 0 and table.max_norm is None
        of_table = rounded(table.weight, 8, GROUP_SIZE, True) if has_table else None
        if type(head) is nn.Linear and head.in_features % GROUP_SIZE == 0:
            is_tied = of_table is not None and head.weight is table.weight
            codes = of_table if is_tied else rounded(head.weight, 8, GROUP_SIZE, True)
            assert codes is not None
            self._put(model.set_output_embeddings, head, linear_of(codes, head.bias))
        if of_table is not None:
            self._put(model.set_input_embeddings, table, EmbeddingOfCodes(of_table, table.weight.dtype).eval())

    def rows(self, bits: int) -> None:
        """Let kernels round what linears of codes are given, those that the model had before too."""
        for module in self._model.modules():
            if isinstance(module, WeightOnlyLinear):
                module.row_bits = bits

    def _put(self, put: Callable[[nn.Module], Any], old: nn.Module, new: nn.Module) -> None:
        put(new)
        self._undo.append(lambda: put(old))
