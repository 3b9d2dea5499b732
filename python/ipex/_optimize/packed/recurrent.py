"""nn.LSTM and nn.GRU on ipex::lstm_run and ipex::gru_run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ... import isa
from ..._torch_internals import graph_break, is_tracing
from .layer import PackedLayer
from .source import PackedParameter

_CAST_BY_AUTOCAST = (torch.float32, torch.bfloat16, torch.float16)


@cache
def multiplies_bfloat16_fast() -> bool:
    """Whether the CPU has instructions that multiply more bfloat16 numbers at a time than float32 ones."""
    return isa.has_fast_avx512_bf16() or isa.has_amx()


class PackedRecurrent(PackedLayer):
    """A recurrent layer with packed weights."""

    # Of nn.RNNBase.
    _flat_weights_names: list[str]
    batch_first: bool
    bias: bool
    bidirectional: bool
    check_forward_args: Any
    dropout: float
    hidden_size: int
    num_layers: int
    proj_size: int

    prepack_op: str
    graph_op: str
    state_count: int
    rows_for_bfloat16: int  # of benchmarks/recurrent_autocast.py

    def parameters_to_pack(self) -> list[str]:
        return list(self._flat_weights_names)

    def prepack(self, values: Mapping[str, Tensor]) -> Any:
        weights = [values[name] for name in self._flat_weights_names]
        op = getattr(torch.ops.ipex, self.prepack_op)
        return op(weights, self.bias, self.num_layers, self.bidirectional, self.batch_first, None)

    def bound_arguments(self) -> tuple[Any, ...]:
        return (self._ipex_context,)

    def parameters_changed(self) -> None:
        self.__dict__.pop("_ipex_plain", None)
        own = self.__dict__["_parameters"]
        self.__dict__["_flat_weights"] = [own.get(name) for name in self._flat_weights_names]

    def as_plain_module(self) -> nn.Module:
        plain = super().as_plain_module()
        plain.__dict__["_flat_weights"] = [plain.__dict__["_parameters"][name] for name in self._flat_weights_names]
        return plain

    def forward_of_class(self, *inputs: Any) -> Any:
        if not self._is_packed_now() or is_tracing():
            return super().forward_of_class(*inputs)
        # Who holds plain weights gets the same ones again: they are unpacked once.
        plain = self.as_plain_module()
        self.__dict__["_ipex_plain"] = list(plain.__dict__["_parameters"].values())
        return plain.forward(*inputs)

    def forward(self, input: Any, hx: Any = None) -> Any:
        if torch.compiler.is_compiling():
            if self._takes_in_graph(input):
                return self._run(input, hx)
            graph_break()
        self._settle()
        if not self._takes(input, hx):
            return self.forward_of_class(input, hx)
        return self._run(input, hx)

    def _takes(self, input: Any, hx: Any) -> bool:
        is_plain = isinstance(input, Tensor) and input.dim() in (2, 3) and not isinstance(input, PackedParameter)
        return (
            is_plain
            and not is_tracing()
            and self._is_packed_now()
            and not (self.training and self.dropout > 0)
            and self._takes_dtype(input.dtype)
            and not self._is_faster_in_bfloat16(input)
        )

    def _takes_in_graph(self, input: Any) -> bool:
        return isinstance(input, Tensor) and self.is_packed_in_graph(input) and self._takes_dtype(input.dtype)

    def _is_faster_in_bfloat16(self, input: Tensor) -> bool:
        """Whether torch's layer, which rounds to autocast's bfloat16, is faster than the packed one in float32."""
        if not torch.is_autocast_enabled("cpu") or torch.get_autocast_dtype("cpu") != torch.bfloat16:
            return False
        rows = input.size(0 if self.batch_first else 1) if input.dim() == 3 else 1
        return rows >= self.rows_for_bfloat16 and multiplies_bfloat16_fast()

    def _takes_dtype(self, dtype: torch.dtype) -> bool:
        return dtype == self._ipex_dtype or (torch.is_autocast_enabled("cpu") and dtype in _CAST_BY_AUTOCAST)

    def call_graph_op(self, *inputs: Tensor) -> Any:
        width = (self.proj_size or self.hidden_size) * (2 if self.bidirectional else 1)
        return getattr(torch.ops.ipex, self.graph_op)(*inputs, self._ipex_context, width)

    def _run(self, input: Tensor, hx: Any) -> Any:
        is_batched = input.dim() == 3
        if not is_batched:
            input = input.unsqueeze(0 if self.batch_first else 1)
        states = self._states(input, hx, is_batched)
        if torch.is_autocast_enabled("cpu"):
            # In float32: nothing is gained by rounding what is packed in float32.
            wanted = self.dtype_under_autocast(states)
            with torch.autocast("cpu", enabled=False):
                found = self.call_op(*[tensor.to(self._ipex_dtype) for tensor in (input, *states)])
                output, *final = [tensor.to(wanted) for tensor in found]
        else:
            output, *final = self.call_op(input, *states)
        if not is_batched:
            output = output.squeeze(0 if self.batch_first else 1)
            final = [state.squeeze(1) for state in final]
        return output, final[0] if len(final) == 1 else tuple(final)

    def dtype_under_autocast(self, states: list[Tensor]) -> torch.dtype:
        """Return the dtype of the results that torch's layer gives under autocast."""
        raise NotImplementedError

    def _states(self, input: Tensor, hx: Any, is_batched: bool) -> list[Tensor]:
        if hx is None:
            rows = input.size(0 if self.batch_first else 1)
            layers = self.num_layers * (2 if self.bidirectional else 1)
            widths = [self.proj_size or self.hidden_size, self.hidden_size][: self.state_count]
            return [torch.zeros(layers, rows, width, dtype=input.dtype, device=input.device) for width in widths]
        given = [hx] if isinstance(hx, Tensor) else list(hx)
        states = given if is_batched else [state.unsqueeze(1) for state in given]
        self.check_forward_args(input, states[0] if self.state_count == 1 else tuple(states), None)
        return states


class PackedLSTM(PackedRecurrent):
    """An LSTM with packed weights."""

    op = "lstm_run"
    prepack_op = "lstm_prepack"
    graph_op = "packed_lstm"
    state_count = 2
    rows_for_bfloat16 = 8

    def dtype_under_autocast(self, states: list[Tensor]) -> torch.dtype:
        return torch.get_autocast_dtype("cpu")


class PackedGRU(PackedRecurrent):
    """A GRU with packed weights."""

    op = "gru_run"
    prepack_op = "gru_prepack"
    graph_op = "packed_gru"
    state_count = 1
    rows_for_bfloat16 = 32

    def dtype_under_autocast(self, states: list[Tensor]) -> torch.dtype:
        return states[0].dtype
