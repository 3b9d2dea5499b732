"""Packed ops as torch.compile and torch.export see them.

Each computes what the runtime's op does, and carries as numbers what its result's shape depends on. So the shape is
known without the weight, for symbolic sizes too.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ..._torch_internals import fake_class_registry, memory_format_of

_CLASS = "__torch__.torch.classes.ipex."
_library = torch.library.Library("ipex", "FRAGMENT")
_library.define(f"packed_linear(Tensor input, {_CLASS}LinearContext context, int width) -> Tensor")
_library.define(f"packed_linear.codes(Tensor input, {_CLASS}WeightOnlyLinearContext context, int width) -> Tensor")
# torch's call of Python ends the process for a ScalarType that is none: a graph names the dtype.
_library.define(f"packed_embedding(Tensor indices, {_CLASS}LinearContext context, int width, str dtype) -> Tensor")
_library.define(
    f"packed_convolution(Tensor input, {_CLASS}ConvolutionContext context, int[] weight, int[] stride, int[] padding, "
    "int[] dilation, int groups, bool transposed, int[] output_padding, bool channels_last) -> Tensor"
)
_library.define(
    f"packed_lstm(Tensor input, Tensor h0, Tensor c0, {_CLASS}LstmContext context, int width) "
    "-> (Tensor, Tensor, Tensor)"
)
_library.define(f"packed_gru(Tensor input, Tensor h0, {_CLASS}GruContext context, int width) -> (Tensor, Tensor)")


class _Context:
    """A context in a graph that is being made: nothing is known of it, and nothing asked."""

    kind = "context"  # as the runtime flattens it

    @classmethod
    def __obj_unflatten__(cls, flattened: Any) -> _Context:
        return cls()

    def fallback_reasons(self) -> list[str]:
        return []

    cached_primitives = facts = primitive_kernels = primitive_math_modes = describe = fallback_reasons


for _name in ("Linear", "WeightOnlyLinear", "Convolution", "Lstm", "Gru"):
    fake_class_registry.register_fake_class(f"ipex::{_name}Context", cast("Any", _Context))


@torch.library.impl(_library, "packed_linear", "CPU")
def _linear(input: Tensor, context: Any, width: int) -> Tensor:
    return torch.ops.ipex.linear_run(input, context, [], True)  # type: ignore[no-any-return]


@torch.library.impl(_library, "packed_linear.codes", "CPU")
def _weight_only_linear(input: Tensor, context: Any, width: int) -> Tensor:
    return torch.ops.ipex.weight_only_linear_run(input, context, [], True)  # type: ignore[no-any-return]


@torch.library.register_fake("ipex::packed_linear.codes", lib=_library)  # type: ignore[untyped-decorator]
@torch.library.register_fake("ipex::packed_linear", lib=_library)  # type: ignore[untyped-decorator]
def _linear_fake(input: Tensor, context: Any, width: int) -> Tensor:
    return input.new_empty((*input.shape[:-1], width))


@torch.library.impl(_library, "packed_embedding", "CPU")
def _embedding(indices: Tensor, context: Any, width: int, dtype: str) -> Tensor:
    return torch.ops.ipex.embedding(indices, context)  # type: ignore[no-any-return]


@torch.library.register_fake("ipex::packed_embedding", lib=_library)  # type: ignore[untyped-decorator]
def _embedding_fake(indices: Tensor, context: Any, width: int, dtype: str) -> Tensor:
    return indices.new_empty((*indices.shape, width), dtype=getattr(torch, dtype))


@torch.library.impl(_library, "packed_convolution", "CPU")
def _convolution(input: Tensor, context: Any, *geometry: Any) -> Tensor:
    return torch.ops.ipex.convolution_run(input, context, [], True)  # type: ignore[no-any-return]


@torch.library.register_fake("ipex::packed_convolution", lib=_library)  # type: ignore[untyped-decorator]
def _convolution_fake(
    input: Tensor,
    context: Any,
    weight: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    transposed: bool,
    output_padding: list[int],
    channels_last: bool,
) -> Tensor:
    rank = len(stride)
    begin, end = (padding[:rank], padding[rank:]) if len(padding) > rank else (padding, padding)
    sizes = []
    for i, size in enumerate(input.shape[-rank:]):
        window, room = dilation[i] * (weight[2 + i] - 1), begin[i] + end[i]
        if transposed:
            sizes.append((size - 1) * stride[i] - room + window + output_padding[i] + 1)
        else:
            sizes.append((size + room - window - 1) // stride[i] + 1)
    channels = weight[1] * groups if transposed else weight[0]
    result = input.new_empty((*input.shape[: -rank - 1], channels, *sizes))
    if rank != 2:
        return result
    # As aten: channels-last where the weight is, or the input.
    batched = input if input.dim() == 4 else input.unsqueeze(0)
    if channels_last or memory_format_of(batched) == torch.channels_last:
        as_image = result if result.dim() == 4 else result.unsqueeze(0)
        return as_image.contiguous(memory_format=torch.channels_last).view_as(result)
    return result


@torch.library.impl(_library, "packed_lstm", "CPU")
def _lstm(input: Tensor, h0: Tensor, c0: Tensor, context: Any, width: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.ipex.lstm_run(input, h0, c0, context)  # type: ignore[no-any-return]


@torch.library.register_fake("ipex::packed_lstm", lib=_library)  # type: ignore[untyped-decorator]
def _lstm_fake(input: Tensor, h0: Tensor, c0: Tensor, context: Any, width: int) -> tuple[Tensor, Tensor, Tensor]:
    return input.new_empty((*input.shape[:2], width)), torch.empty_like(h0), torch.empty_like(c0)


@torch.library.impl(_library, "packed_gru", "CPU")
def _gru(input: Tensor, h0: Tensor, context: Any, width: int) -> tuple[Tensor, Tensor]:
    return torch.ops.ipex.gru_run(input, h0, context)  # type: ignore[no-any-return]


@torch.library.register_fake("ipex::packed_gru", lib=_library)  # type: ignore[untyped-decorator]
def _gru_fake(input: Tensor, h0: Tensor, context: Any, width: int) -> tuple[Tensor, Tensor]:
    return input.new_empty((*input.shape[:2], width)), torch.empty_like(h0)
