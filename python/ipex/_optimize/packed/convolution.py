"""nn.Conv1d, 2d, 3d and their transposes on ipex::convolution_run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..._torch_internals import memory_format_of
from .layer import OneInput
from .linear import hidden_bias


class PackedConvolution(OneInput):
    """A convolution with a packed weight."""

    op = "convolution_run"
    is_transposed = False

    # Of nn.modules.conv._ConvNd.
    _reversed_padding_repeated_twice: list[int]
    in_channels: int
    kernel_size: tuple[int, ...]
    out_channels: int
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int

    def parameters_to_pack(self) -> list[str]:
        return ["weight", "bias"]

    _ipex_channels_last: bool

    def prepack(self, values: Mapping[str, Tensor]) -> Any:
        weight = values["weight"]
        is_image = weight.dim() == 4
        layout = memory_format_of(weight) if is_image else torch.contiguous_format
        self.__dict__["_ipex_channels_last"] = layout == torch.channels_last
        return torch.ops.ipex.convolution_prepack(
            values["weight"],
            values.get("bias", hidden_bias(self)),
            list(self.stride),
            self._both_paddings(),
            list(self.dilation),
            self.groups,
            self.is_transposed,
            list(self.output_padding),
            [],
            None,
            None,
            None,
        )

    def _both_paddings(self) -> list[int]:
        """The widths at the beginning of each dimension, then those at its end."""
        # Which nn.Conv keeps from the last dimension to the first, also for padding="same".
        widths = self._reversed_padding_repeated_twice[::-1]
        ends, beginnings = list(widths[0::2]), list(widths[1::2])
        return beginnings if beginnings == ends else beginnings + ends

    def forward(self, input: Tensor) -> Tensor:
        return self.compute(input)

    def call_graph_op(self, *inputs: Tensor) -> Any:
        padding = self._both_paddings()
        return torch.ops.ipex.packed_convolution(
            *inputs,
            self._ipex_context,
            list(self._weight_shape()),
            list(self.stride),
            padding,
            list(self.dilation),
            self.groups,
            self.is_transposed,
            list(self.output_padding),
            self._ipex_channels_last,
        )

    def _weight_shape(self) -> tuple[int, ...]:
        channels = (self.out_channels, self.in_channels // self.groups)
        if self.is_transposed:
            channels = (self.in_channels, self.out_channels // self.groups)
        return (*channels, *self.kernel_size)


class PackedTransposed(PackedConvolution):
    """A transposed convolution with a packed weight."""

    is_transposed = True

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        return self.compute(input) if output_size is None else self.forward_of_class(input, output_size)
