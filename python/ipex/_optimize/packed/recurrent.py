"""nn.LSTM and nn.GRU on ipex::lstm_run and ipex::gru_run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..._torch_internals import graph_break, is_tracing
from .layer import PackedLayer
from .source import PackedParameter


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

    def parameters_to_pack(self) -> list[str]:
        return list(self._flat_weights_names)

    def prepack(self, values: Mapping[str, Tensor]) -> Any:
        weights = [values[name] for name in self._flat_weights_names]
        op = getattr(torch.ops.ipex, self.prepack_op)
        return op(weights, self.bias, self.num_layers, self.bidirectional, self.batch_first, None)

    def bound_arguments(self) -> tuple[Any, ...]:
        return (self._ipex_context,)

    def parameters_changed(self) -> None:
        own = self.__dict__["_parameters"]
        self.__dict__["_flat_weights"] = [own.get(name) for name in self._flat_weights_names]

    def as_plain_module(self) -> nn.Module:
        plain = super().as_plain_module()
        plain.__dict__["_flat_weights"] = [plain.__dict__["_parameters"][name] for name in self._flat_weights_names]
        return plain

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
            and not torch.is_autocast_enabled("cpu")
            and input.dtype == self._ipex_dtype
        )

    def _takes_in_graph(self, input: Any) -> bool:
        return isinstance(input, Tensor) and self.is_packed_in_graph(input) and input.dtype == self._ipex_dtype

    def call_graph_op(self, *inputs: Tensor) -> Any:
        width = (self.proj_size or self.hidden_size) * (2 if self.bidirectional else 1)
        return getattr(torch.ops.ipex, self.graph_op)(*inputs, self._ipex_context, width)

    def _run(self, input: Tensor, hx: Any) -> Any:
        is_batched = input.dim() == 3
        if not is_batched:
            input = input.unsqueeze(0 if self.batch_first else 1)
        states = self._states(input, hx, is_batched)
        output, *final = self.call_op(input, *states)
        if not is_batched:
            output = output.squeeze(0 if self.batch_first else 1)
            final = [state.squeeze(1) for state in final]
        return output, final[0] if len(final) == 1 else tuple(final)

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


class PackedGRU(PackedRecurrent):
    """A GRU with packed weights."""

    op = "gru_run"
    prepack_op = "gru_prepack"
    graph_op = "packed_gru"
    state_count = 1
