"""Modules of codes, which lie packed: a linear whose weight is codes that somebody else has made, and its kin."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._torch_internals import tracing_paused, tree_map


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


_PACKED = ("codes", "scales", "offsets")
_TENSORS = (*_PACKED, "order", "bias", "values")


class OfCodes(nn.Module):
    """A matrix of codes of 4 or 8 bits, with a scale and perhaps an offset for each group of inputs.

    On a CPU they lie in the layout of the kernels, in what the runtime calls a context, and nowhere else. Copies,
    graphs and tied modules share it. Whoever asks for `codes`, `scales` or `offsets` gets tensors that are made of it:
    assign them to change them. `dtype` is that of the numbers the codes stand for, where a call does not say it.
    """

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None
    order: Tensor | None
    bias: Tensor | None
    values: Tensor | None
    row_bits: int = 24
    dtype: torch.dtype = torch.float32
    out_features: int
    in_features: int
    group_size: int
    _ipex_context: Any = None

    def _hold(self, **tensors: Tensor | None) -> None:
        for name in _TENSORS:
            self.register_buffer(name, tensors.get(name))
        self._pack()

    def share(self, other: OfCodes) -> None:
        """Hold what the other one holds."""
        for name in ("out_features", "in_features", "group_size", "row_bits", "dtype"):
            setattr(self, name, getattr(other, name))
        self._buffers.update(other._buffers)
        self.__dict__["_ipex_context"] = other._ipex_context

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return torch.device("cpu") if self._ipex_context is not None else self.scales.device

    @property
    def weight(self) -> Tensor:
        """The matrix, whose numbers are made where an op reads them."""
        return WeightOfCodes((self.out_features, self.in_features), self.dtype, self.device, self._numbers)

    def _numbers(self) -> Tensor:
        if self._ipex_context is not None:
            return self.rows(torch.arange(self.out_features))
        # The op alone knows all formats. Each sum has one number and zeros.
        numbers: Tensor = torch.ops.ipex.weight_only_linear(
            torch.eye(self.in_features, device=self.device), *self._arguments(None)
        )
        return numbers.t().contiguous()

    def rows(self, numbers: Tensor) -> Tensor:
        """Return rows of the matrix in float32."""
        if self._ipex_context is None:
            return self._numbers()[numbers]
        result: Tensor = torch.ops.ipex.rows_of_codes(numbers, self._ipex_context)
        return result

    def _arguments(self, bias: Tensor | None) -> tuple[Any, ...]:
        """What the op takes where nothing is packed."""
        tensors = (self.codes, self.scales, self.offsets, self.order, bias)
        return (*tensors, self.in_features, self.group_size, self.row_bits, self.values)

    def _pack(self) -> None:
        own = self._buffers
        if any(tensor is not None and tensor.device.type != "cpu" for tensor in own.values()):
            return
        self.__dict__["_ipex_context"] = self._prepacked()
        for name in _PACKED:
            del own[name]

    def _prepacked(self) -> Any:
        *weight, bias, inputs, size, row_bits, values = self._arguments(self.bias)
        prepack = torch.ops.ipex.weight_only_linear_prepack.codes
        return prepack(*weight, bias, [], inputs, size, row_bits, values)

    def _with_row_bits(self, bits: int) -> Any:
        return torch.ops.ipex.weight_only_linear_prepack.again(self._ipex_context, [], bits)

    def _unpacked(self) -> dict[str, Tensor | None]:
        """What is packed, as it was."""
        with tracing_paused():  # to a trace they are constants, however they are made
            tensors = self._of_state(self._ipex_context.__getstate__()[0])
        return {name: tensors.get(name) for name in _PACKED}

    def _of_state(self, state: Any) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = state[1]
        return tensors

    def _plain_buffers(self) -> dict[str, Tensor | None]:
        return self._buffers if self._ipex_context is None else {**self._unpacked(), **self._buffers}

    def _unpack(self) -> None:
        self.__dict__["_buffers"] = self._plain_buffers()
        self.__dict__.pop("_ipex_context", None)

    def __getattr__(self, name: str) -> Any:
        if name in _PACKED and self._ipex_context is not None:
            return self._unpacked()[name]
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._ipex_context is None or name not in (*_TENSORS, "row_bits"):
            return super().__setattr__(name, value)
        if name == "row_bits":
            self.__dict__.update(row_bits=value, _ipex_context=self._with_row_bits(value))
            return None
        self._unpack()
        super().__setattr__(name, value)
        return self._pack()

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Keep what is held as it is where the model gets another dtype."""

        def moved(tensor: Tensor) -> Tensor:
            result: Tensor = fn(tensor)
            return result if result.dtype == tensor.dtype else tensor.to(result.device)

        like = fn(torch.empty(0, dtype=self.dtype, device=self.device))
        if like.device != self.device:
            self._unpack()
        self.dtype = like.dtype
        super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        if self._ipex_context is None:
            self._pack()
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        plain = nn.Module()
        plain._buffers, plain._parameters = self._plain_buffers(), self._parameters
        plain._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._unpack()
        try:
            super()._load_from_state_dict(*args, **kwargs)
        finally:
            self._pack()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = memo[id(self)] = type(self).__new__(type(self))
        for name, value in self.__dict__.items():
            made.__dict__[name] = value if name == "_ipex_context" else copy.deepcopy(value, memo)
        return made

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_buffers": self._plain_buffers()}
        state.pop("_ipex_context", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._pack()


class WeightOnlyLinear(OfCodes):
    """A linear whose weight is codes of 4 or 8 bits, with a scale and perhaps an offset for each group of inputs.

    `ipex.quantization.from_gptq` and `from_awq` put these where a model has `nn.Linear`. Codes are integers, 8-bit
    floats, or with `values` the places of numbers in those. The weight is `(codes - offsets) * scales`; code k of a row
    meets input `order[k]`. Kernels read the codes, as they are packed; on other devices than CPUs a call computes the
    weight in floats. It is not trained. `weight` has the numbers, in `dtype`, for whoever asks; a call computes in the
    dtype of its input.

    `row_bits` is 24 where kernels take inputs as they are. With 16 or 8 they round the inputs of each group to so many
    bits, which is faster.
    """

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
        to 15. Codes of 4 bits may be uint8 [outputs, inputs / 2] too, the first of two in the lower half.
        """
        super().__init__()
        are_halves = bits == 4 and codes.dtype == torch.uint8
        self.out_features, self.in_features = codes.shape[0], codes.shape[1] * (2 if are_halves else 1)
        self.bits, self.group_size, self.dtype = bits, group_size, dtype
        self.kind = "values" if values is not None else "floats" if codes.is_floating_point() else "integers"
        codes = codes.contiguous() if bits == 8 or are_halves else in_halves(codes)
        self._hold(codes=codes, scales=scales, offsets=offsets, order=order, bias=bias, values=values)

    def forward(self, input: Tensor) -> Tensor:
        """Compute with the numbers that the codes stand for, in the input's dtype."""
        packed = self._ipex_context
        if packed is None:
            result: Tensor = torch.ops.ipex.weight_only_linear(input, *self._arguments(self.bias))
        elif torch.compiler.is_compiling() and not (torch.is_grad_enabled() and input.requires_grad):
            result = torch.ops.ipex.packed_linear.codes(input, packed, self.out_features)
        else:
            result = torch.ops.ipex.weight_only_linear_run(input, packed, [], True)
        return result

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
        self.__dict__["groups"] = groups
        super().__init__(*args, **kwargs)
        self.out_features //= groups

    def forward(self, input: Tensor, ends: Tensor) -> Tensor:  # type: ignore[override]
        """Multiply rows that lie group by group; `ends` says where each group ends, as int32."""
        result: Tensor = (
            torch.ops.ipex.grouped_weight_only_linear(input, ends, *self._arguments(None))
            if self._ipex_context is None
            else torch.ops.ipex.grouped_linear_run.codes(input, ends, self._ipex_context)
        )
        return result

    def _hold(self, **tensors: Tensor | None) -> None:
        for name in _PACKED:
            tensor = tensors[name]
            if tensor is not None:
                tensors[name] = tensor.unflatten(0, (self.groups, -1))
        super()._hold(**tensors)

    def _arguments(self, bias: Tensor | None) -> tuple[Any, ...]:
        return (self.codes, self.scales, self.offsets, self.in_features, self.group_size, self.row_bits, self.values)

    def _prepacked(self) -> Any:
        return torch.ops.ipex.grouped_linear_prepack.codes(*self._arguments(None))

    def _with_row_bits(self, bits: int) -> Any:
        return torch.ops.ipex.grouped_linear_prepack.again(self._ipex_context, bits)

    def _of_state(self, state: Any) -> dict[str, Tensor]:
        groups = [super(GroupedWeightOnlyLinear, self)._of_state(one) for one in state]
        return {name: torch.stack([one[name] for one in groups]) for name in groups[0] if name in _PACKED}

    @property
    def weight(self) -> Tensor:
        """The matrices, whose numbers are made where an op reads them."""
        shape = (self.groups, self.out_features, self.in_features)
        return WeightOfCodes(shape, self.dtype, self.device, self._numbers)

    def _numbers(self) -> Tensor:
        # The op alone knows all formats. Each sum has one number and zeros.
        rows = torch.eye(self.in_features, device=self.device).repeat(self.groups, 1)
        ends = torch.arange(1, self.groups + 1, dtype=torch.int32) * self.in_features
        numbers: Tensor = torch.ops.ipex.grouped_weight_only_linear(rows, ends, *self._arguments(None))
        return numbers.view(self.groups, self.in_features, -1).transpose(1, 2).contiguous()

    def extra_repr(self) -> str:
        """Say what it is made of."""
        return f"groups={self.groups}, {super().extra_repr()}"


def precision_of_rows(model: nn.Module) -> str:
    """Return what the linears of a model round their inputs to, as the table of tolerances names it."""
    linears = [module for module in model.modules() if isinstance(module, WeightOnlyLinear)]
    return f"rows{min((linear.row_bits for linear in linears), default=24)}"


def in_halves(codes: Tensor) -> Tensor:
    """Put two neighbours of a row into a byte, the first into its lower half."""
    given = codes.view(torch.uint8)
    if given.shape[1] % 2:
        given = F.pad(given, (0, 1))
    both = given.contiguous().view(torch.int16)
    return (both & 15 | both >> 4 & 240).to(torch.uint8)
