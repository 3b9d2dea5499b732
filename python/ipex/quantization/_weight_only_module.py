"""A linear whose weight is codes that somebody else has made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class WeightOnlyLinear(nn.Module):
    """A linear whose weight is codes of 4 or 8 bits, with a scale and perhaps an offset for each group of inputs.

    `ipex.quantization.from_gptq` and `from_awq` put these where a model has `nn.Linear`. `ipex.jit_optimize` packs the
    codes and runs kernels on them; as it is, a call computes the weight in floats first. Codes are integers, 8-bit
    floats, or with `values` the places of numbers in those. The weight is `(codes - offsets) * scales`; code k of a row
    meets input `order[k]`. It is not trained.

    `row_bits` is 24 where packed kernels take inputs as they are. With 16 or 8 they round the inputs of each group to
    so many bits, which is faster.
    """

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None
    order: Tensor | None
    bias: Tensor | None
    values: Tensor | None
    row_bits: int = 24

    def __init__(
        self,
        codes: Tensor,
        scales: Tensor,
        offsets: Tensor | None = None,
        order: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        bits: int,
        group_size: int,
        values: Tensor | None = None,
    ) -> None:
        """Take codes [outputs, inputs], and scales and offsets [outputs, groups].

        Codes are int8, of -8 to 7 where `bits` is 4, or floats of 8 bits. With `values`, those of NF4, they are from 0
        to 15.
        """
        super().__init__()
        self.out_features, self.in_features = codes.shape
        self.bits, self.group_size = bits, group_size
        self.register_buffer("codes", _in_halves(codes) if bits == 4 else codes.contiguous())
        self.register_buffer("scales", scales)
        self.register_buffer("offsets", offsets)
        self.register_buffer("order", order)
        self.register_buffer("bias", bias)
        self.register_buffer("values", values)
        self.kind = "values" if values is not None else "floats" if codes.is_floating_point() else "integers"

    def forward(self, input: Tensor) -> Tensor:
        """Compute with the numbers that the codes stand for, in the input's dtype."""
        own = (self.codes, self.scales, self.offsets, self.order, self.bias, self.in_features, self.group_size)
        result: Tensor = torch.ops.ipex.weight_only_linear(input, *own, self.row_bits, self.values)
        return result

    def extra_repr(self) -> str:
        """Say what it is made of."""
        rows = "" if self.row_bits == 24 else f", row_bits={self.row_bits}"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"bits={self.bits}, group_size={self.group_size}{'' if self.kind == 'integers' else ', ' + self.kind}{rows}"
        )

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Stay float32 where the model gets another dtype: results follow the input."""

        def moved(tensor: Tensor) -> Tensor:
            result: Tensor = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        return super()._apply(moved, recurse)  # type: ignore[no-untyped-call]


def precision_of_rows(model: nn.Module) -> str:
    """Return what the linears of a model round their inputs to, as the table of tolerances names it."""
    linears = [module for module in model.modules() if isinstance(module, WeightOnlyLinear)]
    return f"rows{min((linear.row_bits for linear in linears), default=24)}"


def _in_halves(codes: Tensor) -> Tensor:
    """Put two neighbours of a row into a byte, the first into its lower half."""
    even = nn.functional.pad(codes, (0, codes.shape[1] % 2)).view(torch.uint8) & 15
    return even[:, ::2] | even[:, 1::2] << 4
