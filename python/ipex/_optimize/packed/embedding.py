"""nn.Embedding that shares its weight with packed linears: it reads rows of what they pack.

It reads them out of float32 panels. In 16 bits the runtime keeps plain rows beside the packed weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..._torch_internals import graph_break, is_tracing
from .layer import PackedLayer, packed_class
from .linear import pack_linear
from .source import PackedParameter, source_of


class PackedEmbedding(PackedLayer):
    """An embedding whose context is that of a linear."""

    op = "embedding"
    embedding_dim: int  # of nn.Embedding

    def parameters_to_pack(self) -> list[str]:
        return ["weight"]

    def prepack(self, values: Mapping[str, Tensor]) -> Any:
        return pack_linear(values["weight"], None)

    def pack(self) -> None:
        """Give the values to the linear. Copied or loaded before that, it packs them itself until then."""
        plain = self.__dict__["_parameters"]["weight"]
        if self._linear() is None:
            return super().pack()
        self.read_from_linear()
        if not isinstance(plain, PackedParameter):
            source_of(plain).write(plain.detach())

    def repack(self, changed: Mapping[str, nn.Parameter]) -> None:
        if self._linear() is None:
            super().repack(changed)

    def read_from_linear(self) -> None:
        """Read rows of what a linear has packed."""
        own, linear = self.__dict__["_parameters"], self._linear()
        assert linear is not None
        source = source_of(own["weight"])
        source.discard(self, "weight")
        source.add(self, "weight")
        own["weight"] = source.parameter
        self.__dict__["_ipex_dtype"] = source.parameter.dtype
        self.shared(linear._ipex_context)

    def shared(self, context: Any) -> None:
        self.__dict__["_ipex_context"] = context

    def _linear(self) -> Any:
        """Return a packed layer that shares the weight, and is no embedding."""
        layers = source_of(self.__dict__["_parameters"]["weight"]).layers()
        return next((layer for layer in layers if not isinstance(layer, PackedEmbedding)), None)

    def forward(self, input: Tensor) -> Tensor:
        result = self._rows(input)
        is_cast = self._ipex_casts and not torch.is_autocast_enabled("cpu")
        return result.float() if is_cast else result

    def _rows(self, input: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            if self.is_packed_in_graph(input):
                return self.call_graph_op(input)  # type: ignore[no-any-return]
            graph_break()
        self._settle()
        if is_tracing() or not self._is_packed_now():
            return self.forward_of_class(input)  # type: ignore[no-any-return]
        return self.call_op(input)  # type: ignore[no-any-return]

    def bound_arguments(self) -> tuple[Any, ...]:
        return (self._ipex_context,)

    def call_graph_op(self, *inputs: Tensor) -> Any:
        dtype = str(self._ipex_dtype).removeprefix("torch.")
        return torch.ops.ipex.packed_embedding(*inputs, self._ipex_context, self.embedding_dim, dtype)


def share_packed(module: Any, *, casts: bool) -> None:
    """Make this embedding read rows of what a linear has packed of its weight."""
    module.__class__ = packed_class(PackedEmbedding, type(module))
    module.__dict__["_ipex_casts"] = casts
    module.read_from_linear()
