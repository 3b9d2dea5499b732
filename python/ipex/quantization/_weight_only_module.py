"""A linear whose weight is codes that somebody else has made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .._torch_internals import tree_map


class WeightOfCodes(Tensor):
    """What a module of codes answers where somebody asks for its weight, as T5 asks for the dtype of one.

    It has shape, dtype and device, and no memory: each op on it makes the numbers anew. It is not written.
    """

    numbers: Callable[[], Tensor]

    @staticmethod
    def __new__(
        cls, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, numbers: Callable[[], Tensor]
    ) -> WeightOfCodes:
        made: WeightOfCodes = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)
        made.numbers = numbers
        return made

    def __init__(self, *_: Any) -> None:
        pass

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        return repr(self.clone())

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.ops.aten.detach.default:
            of = args[0]
            return WeightOfCodes(of.shape, of.dtype, of.device, of.numbers)
        if function._schema.is_mutable and isinstance(args[0], WeightOfCodes):
            raise RuntimeError(
                "ipex: expected no write to a weight that is kept as codes, got one. Write to the module's codes and "
                "scales, or put another module in its place."
            )

        def plain(value: Any) -> Any:
            return value.numbers().to(value.dtype) if isinstance(value, WeightOfCodes) else value

        return function(*tree_map(plain, args), **tree_map(plain, kwargs or {}))


class OfCodes(nn.Module):
    """Holds codes with float32 scales. `dtype` is that of the numbers they stand for, where a call does not say it."""

    scales: Tensor
    dtype: torch.dtype = torch.float32

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Keep what is held as it is where the model gets another dtype."""

        def moved(tensor: Tensor) -> Tensor:
            result: Tensor = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        self.dtype = fn(torch.empty(0, dtype=self.dtype, device=self.scales.device)).dtype
        return super()._apply(moved, recurse)  # type: ignore[no-untyped-call]


class WeightOnlyLinear(OfCodes):
    """A linear whose weight is codes of 4 or 8 bits, with a scale and perhaps an offset for each group of inputs.

    `ipex.quantization.from_gptq` and `from_awq` put these where a model has `nn.Linear`. `ipex.jit_optimize` packs the
    codes and runs kernels on them; as it is, a call computes the weight in floats first. Codes are integers, 8-bit
    floats, or with `values` the places of numbers in those. The weight is `(codes - offsets) * scales`; code k of a row
    meets input `order[k]`. It is not trained. `weight` has the numbers, in `dtype`, for whoever asks; a call computes
    in the dtype of its input.

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
    dtype: torch.dtype = torch.float32

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
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Take codes [outputs, inputs], and scales and offsets [outputs, groups].

        Codes are int8, of -8 to 7 where `bits` is 4, or floats of 8 bits. With `values`, those of NF4, they are from 0
        to 15.
        """
        super().__init__()
        self.out_features, self.in_features = codes.shape
        self.bits, self.group_size, self.dtype = bits, group_size, dtype
        self.register_buffer("codes", _in_halves(codes) if bits == 4 else codes.contiguous())
        self.register_buffer("scales", scales)
        self.register_buffer("offsets", offsets)
        self.register_buffer("order", order)
        self.register_buffer("bias", bias)
        self.register_buffer("values", values)
        self.kind = "values" if values is not None else "floats" if codes.is_floating_point() else "integers"

    def forward(self, input: Tensor) -> Tensor:
        """Compute with the numbers that the codes stand for, in the input's dtype."""
        return self._product(input, self.bias)

    def _product(self, input: Tensor, bias: Tensor | None) -> Tensor:
        own = (self.codes, self.scales, self.offsets, self.order, bias, self.in_features, self.group_size)
        result: Tensor = torch.ops.ipex.weight_only_linear(input, *own, self.row_bits, self.values)
        return result

    @property
    def weight(self) -> Tensor:
        """The weight, whose numbers are made where an op reads them."""
        shape = (*self.scales.shape[:-1], self.in_features)
        return WeightOfCodes(shape, self.dtype, self.scales.device, self._numbers)

    def _numbers(self) -> Tensor:
        # The op alone knows all formats. Each sum has one number and zeros.
        return self._product(torch.eye(self.in_features, device=self.scales.device), None).t().contiguous()

    def extra_repr(self) -> str:
        """Say what it is made of."""
        rows = "" if self.row_bits == 24 else f", row_bits={self.row_bits}"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"bits={self.bits}, group_size={self.group_size}{'' if self.kind == 'integers' else ', ' + self.kind}{rows}"
        )


class GroupedWeightOnlyLinear(WeightOnlyLinear):
    """The same with a matrix for each group of rows, the experts of a mixture. A group without rows is not read.

    It takes the matrices one below the other, and keeps codes, scales and offsets with a dimension more in front.
    """

    def __init__(self, groups: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups, self.out_features = groups, self.out_features // groups
        for name in ("codes", "scales", "offsets"):
            tensor = getattr(self, name)
            if tensor is not None:
                # detach: a view would keep what it is a view of when it lets go of its own memory.
                setattr(self, name, tensor.view(groups, self.out_features, -1).detach())

    def forward(self, input: Tensor, ends: Tensor) -> Tensor:  # type: ignore[override]
        """Multiply rows that lie group by group; `ends` says where each group ends, as int32."""
        own = (self.codes, self.scales, self.offsets, self.in_features, self.group_size)
        result: Tensor = torch.ops.ipex.grouped_weight_only_linear(input, ends, *own, self.row_bits, self.values)
        return result

    def _numbers(self) -> Tensor:
        rows = torch.eye(self.in_features, device=self.scales.device).repeat(self.groups, 1)
        ends = torch.arange(1, self.groups + 1, dtype=torch.int32) * self.in_features
        return self(rows, ends).view(self.groups, self.in_features, -1).transpose(1, 2).contiguous()  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Say what it is made of."""
        return f"groups={self.groups}, {super().extra_repr()}"


def precision_of_rows(model: nn.Module) -> str:
    """Return what the linears of a model round their inputs to, as the table of tolerances names it."""
    linears = [module for module in model.modules() if isinstance(module, WeightOnlyLinear)]
    return f"rows{min((linear.row_bits for linear in linears), default=24)}"


def _in_halves(codes: Tensor) -> Tensor:
    """Put two neighbours of a row into a byte, the first into its lower half."""
    given = codes.view(torch.uint8)
    halves = given[:, ::2] & 15
    halves[:, : codes.shape[1] // 2] |= given[:, 1::2] << 4
    return halves
