"""nn.Linear, and transformers' Conv1D, on ipex::linear_run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .layer import OneInput


class PackedLinear(OneInput):
    """A linear layer with a packed weight."""

    op = "linear_run"
    out_features: int  # of nn.Linear

    def parameters_to_pack(self) -> list[str]:
        return ["weight", "bias"]

    def prepack(self, values: Mapping[str, Tensor]) -> Any:
        return pack_linear(values["weight"], values.get("bias", hidden_bias(self)))

    def forward(self, input: Tensor) -> Tensor:
        return self.compute(input)

    def call_graph_op(self, *inputs: Tensor) -> Any:
        return torch.ops.ipex.packed_linear.default(*inputs, self._ipex_context, self._outputs())

    def _outputs(self) -> int:
        return self.out_features


class PackedConv1D(PackedLinear):
    """The linear layer of GPT-2. Its weight is [inputs, outputs]."""

    nf: int

    def _outputs(self) -> int:
        return self.nf

    def prepack(self, values: Mapping[str, Tensor]) -> Any:
        return super().prepack({**values, "weight": values["weight"].t()})

    @staticmethod
    def values_in(context: Any, name: str) -> Tensor:
        values = PackedLinear.values_in(context, name)
        return values.t().contiguous() if name == "weight" else values

    def extra_repr(self) -> str:
        return f"nf={self.nf}"


def pack_linear(weight: Tensor, bias: Tensor | None) -> Any:
    """Return the context of a linear."""
    return torch.ops.ipex.linear_prepack(weight, bias, [], None, None, None)


def hidden_bias(module: nn.Module) -> Tensor | None:
    """Return the bias of a layer that has none of its own, but a folded batch_norm's."""
    return module._buffers.get("bias")
