"""Matrices of codes with scales: those of a file, or rounded here; and the table of embeddings that reads one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any

import torch
from torch import Tensor, nn

from ..quantization import WeightOnlyLinear
from ..quantization._weight_only_module import GroupedWeightOnlyLinear, OfCodes

GROUP_SIZE = 32  # of what is rounded here
_IN_HALF_BYTES = ("int4", "nf4")


@dataclass(frozen=True)
class Codes:
    """A matrix [outputs, inputs] of `(codes - offsets) * scales`; scales and offsets are [outputs, groups]."""

    codes: Tensor  # int8, or floats of 8 bits; uint8 of two codes of 4 bits
    scales: Tensor
    offsets: Tensor | None
    bits: int
    group_size: int
    values: Tensor | None = None  # that codes are the places of

    def numbers(self) -> Tensor:
        """Return the matrix in float32."""
        each = self.each()
        plain = each if self.values is None else self.values[each.long()]
        codes = plain.float().view(*self.scales.shape, self.group_size)
        if self.offsets is not None:
            codes -= self.offsets.unsqueeze(-1)
        return (codes * self.scales.unsqueeze(-1)).view(each.shape)

    def each(self) -> Tensor:
        """Return the codes, none two in a byte."""
        if self.codes.dtype != torch.uint8:
            return self.codes
        both = torch.stack([self.codes & 15, self.codes >> 4], 2).flatten(1).to(torch.int8)
        return both if self.values is not None else (both ^ 8) - 8  # the sign is bit 3

    def rows(self, order: Tensor) -> Codes:
        """Return it with its rows in another order."""
        offsets = None if self.offsets is None else self.offsets[order]
        return Codes(self.codes[order], self.scales[order], offsets, self.bits, self.group_size, self.values)

    def beside(self, *others: Codes, parts: int = 1) -> Codes:
        """Return the rows in so many parts, behind each the same part of other matrices of integers."""
        all_ = (self, *others)
        size, bits = gcd(*(one.group_size for one in all_)), max(one.bits for one in all_)
        are_halves = all(one.codes.dtype == torch.uint8 for one in all_)
        codes = [one.codes if are_halves else one.each() for one in all_]

        def joined(tensors: Iterable[Tensor]) -> Tensor:
            return torch.cat([tensor.unflatten(0, (parts, -1)) for tensor in tensors], 1).flatten(0, 1)

        def of_groups(codes: Codes, values: Tensor | None) -> Tensor:
            values = torch.zeros_like(codes.scales) if values is None else values
            return values.repeat_interleave(codes.group_size // size, 1)

        scales = joined(of_groups(one, one.scales) for one in all_)
        has_offsets = any(one.offsets is not None for one in all_)
        offsets = joined(of_groups(one, one.offsets) for one in all_) if has_offsets else None
        return Codes(joined(codes), scales, offsets, bits, size)


class EmbeddingOfCodes(OfCodes):
    """A table of embeddings whose rows are those of what a linear has packed."""

    def __init__(self, linear: WeightOnlyLinear) -> None:
        super().__init__()
        self.share(linear)
        self.num_embeddings, self.embedding_dim = linear.out_features, linear.in_features

    def forward(self, words: Tensor) -> Tensor:
        """Return the rows of these words."""
        return self.rows(words).to(self.dtype)


class ExpertsOfCodes(nn.Module):
    """The experts of a mixture, as transformers calls them, whose matrices lie one below the other as codes."""

    def __init__(self, count: int, gate_up: Codes, down: Codes, act_fn: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.count, self.act_fn = count, act_fn
        self.gate_up_proj, self.down_proj = (_grouped(count, codes, dtype) for codes in (gate_up, down))

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Return for each token the weighted sum of what its experts compute."""
        rows, order, ends = torch.ops.ipex.rows_by_expert(hidden_states, top_k_index, self.count)
        gate, up = self.gate_up_proj(rows, ends).chunk(2, dim=-1)
        found = self.down_proj(self.act_fn(gate) * up, ends)
        result: Tensor = torch.ops.ipex.sum_of_experts(found, order, top_k_weights)
        return result


def _grouped(count: int, codes: Codes, dtype: torch.dtype) -> GroupedWeightOnlyLinear:
    own = {"bits": codes.bits, "group_size": codes.group_size, "values": codes.values, "dtype": dtype}
    return GroupedWeightOnlyLinear(count, codes.codes, codes.scales, codes.offsets, **own).eval()


def rounded(weight: Tensor, form: str, group_size: int, symmetric: bool) -> Codes:
    """Round a matrix whose rows are whole numbers of groups to a format of `ipex.quantization.weight_only`."""
    codes, scales, offsets, values = torch.ops.ipex.round_weight(weight.detach().float(), form, group_size, symmetric)
    bits, size = 4 if form in _IN_HALF_BYTES else 8, group_size or weight.shape[1]
    return Codes(codes, scales, offsets, bits, size, values)


def linear_of(codes: Codes, bias: Tensor | None, dtype: torch.dtype = torch.float32) -> WeightOnlyLinear:
    """Return a linear with this weight, which answers that it is of this dtype."""
    made = WeightOnlyLinear(
        codes.codes,
        codes.scales,
        codes.offsets,
        bias=None if bias is None else bias.detach().float(),
        bits=codes.bits,
        group_size=codes.group_size,
        values=codes.values,
        dtype=dtype,
    )
    return made.eval()


def _are_usual(experts: Any) -> bool:
    """Whether they are w2(act(w1(x)) * w3(x)), as ExpertsOfCodes computes it."""
    return (
        type(experts)._apply_gate.__name__ == "_default_apply_gate"
        and set(experts._parameters) == {"gate_up_proj", "down_proj"}
        and set(experts._modules) == {"act_fn"}
        and not experts.is_transposed
        and getattr(experts, "is_concatenated", True)
    )


class Rounding:
    """Codes in place of a model's linears, embedding and head. `undo` puts back what was there."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._dtype = next((parameter.dtype for parameter in model.parameters()), torch.float32)
        self._undo: list[Callable[[], None]] = []

    def undo(self) -> None:
        """Put every layer back."""
        while self._undo:
            self._undo.pop()()

    def has_changed_anything(self) -> bool:
        """Whether a layer became codes."""
        return bool(self._undo)

    def linears(self, form: str, group_size: int, symmetric: bool) -> list[str]:
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
            linear = linear_of(rounded(module.weight, form, size, symmetric), module.bias, module.weight.dtype)
            self._put(partial(setattr, self._model.get_submodule(parent), own), module, linear)
        return left

    def experts(self, form: str, group_size: int, symmetric: bool) -> dict[str, str]:
        """Round the experts of mixtures. Return the names of those that stay, and why."""
        left = {}
        for name, module in list(self._model.named_modules()):
            if not hasattr(type(module), "_apply_gate"):  # transformers' mark of experts
                continue
            if not _are_usual(module):
                left[name] = "its experts compute in a way of their own"
                continue
            matrices = module.gate_up_proj, module.down_proj
            sizes = [group_size or matrix.shape[2] for matrix in matrices]
            if any(matrix.shape[2] % size or size % 8 for matrix, size in zip(matrices, sizes)):
                left[name] = "its inputs are no whole number of groups"
                continue
            gate_up, down = (rounded(one.flatten(0, 1), form, size, symmetric) for one, size in zip(matrices, sizes))
            count, dtype = matrices[0].shape[0], matrices[0].dtype
            experts = ExpertsOfCodes(count, gate_up, down, module.act_fn, dtype).eval()
            parent, _, own = name.rpartition(".")
            self._put(partial(setattr, self._model.get_submodule(parent), own), module, experts)
        return left

    def ends(self) -> None:
        """Round the embedding and the head to 8 bits: fewer cost much there."""
        model = self._model
        table, head = model.get_input_embeddings(), model.get_output_embeddings()
        has_table = type(table) is nn.Embedding and table.embedding_dim % GROUP_SIZE == 0 and table.max_norm is None
        linear = None
        if type(head) is nn.Linear and head.in_features % GROUP_SIZE == 0:
            linear = self._of_ends(head.weight, head.bias)
            self._put(model.set_output_embeddings, head, linear)
        if has_table:
            is_tied = linear is not None and head.weight is table.weight
            of_table = linear if is_tied else self._of_ends(table.weight, None)
            assert of_table is not None
            self._put(model.set_input_embeddings, table, EmbeddingOfCodes(of_table).eval())

    @staticmethod
    def _of_ends(weight: Tensor, bias: Tensor | None) -> WeightOnlyLinear:
        return linear_of(rounded(weight, "int8", GROUP_SIZE, True), bias, weight.dtype)

    def rows(self, bits: int) -> None:
        """Let kernels round what linears of codes are given, those that the model had before too."""
        modules = [module for module in self._model.modules() if isinstance(module, OfCodes)]
        for linear in modules:
            if not isinstance(linear, WeightOnlyLinear):
                continue
            tied = [one for one in modules if one is not linear and one._ipex_context is linear._ipex_context]
            linear.row_bits = bits
            for one in tied:
                one.share(linear)

    def leave_a_parameter(self) -> None:
        """Transformers asks the first one for dtype and device: without norms that have weights none would be left."""
        if next(self._model.parameters(), None) is None:
            none = nn.Parameter(torch.empty(0, dtype=self._dtype), False)
            self._model.get_input_embeddings().register_parameter("_ipex_dtype", none)

    def _put(self, put: Callable[[nn.Module], Any], old: nn.Module, new: nn.Module) -> None:
        put(new)
        self._undo.append(lambda: put(old))
