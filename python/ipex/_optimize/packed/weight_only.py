"""`ipex.quantization.WeightOnlyLinear` with its integers in the layout of the kernels, which are their only copy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..._torch_internals import is_tracing, tracing_paused
from ...quantization import WeightOnlyLinear

_TENSORS = ("codes", "scales", "offsets", "order", "bias", "values")


class PackedWeightOnlyLinear(WeightOnlyLinear):
    """The module's own class becomes this one. `codes` are unpacked for whoever asks for them."""

    def __getattr__(self, name: str) -> Any:
        packed = self.__dict__.get("_ipex_context") if name == "codes" else None
        return super().__getattr__(name) if packed is None else _codes_in(packed)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in (*_TENSORS, "row_bits") or "_ipex_context" not in self.__dict__:
            return super().__setattr__(name, value)
        self._unpack()
        super().__setattr__(name, value)
        self.pack()

    def forward(self, input: Tensor) -> Tensor:
        """Multiply by the integers. A trace holds them as they were."""
        packed = self.__dict__.get("_ipex_context")
        if packed is None or is_tracing():
            return super().forward(input)
        if torch.compiler.is_compiling() and not (torch.is_grad_enabled() and input.requires_grad):
            in_graph: Tensor = torch.ops.ipex.packed_linear.codes(input, packed, self.out_features)
            return in_graph
        result: Tensor = torch.ops.ipex.weight_only_linear_run(input, packed, [], True)
        return result

    def pack(self) -> None:
        """Pack the integers, if they are there, and hold them nowhere else."""
        own = self.__dict__["_buffers"]
        tensors = [own[name] for name in _TENSORS]
        if any(tensor is not None and tensor.device.type != "cpu" for tensor in tensors):
            return
        *weight, values = tensors
        prepack = torch.ops.ipex.weight_only_linear_prepack.codes
        packed = prepack(*weight, [], self.in_features, self.group_size, self.row_bits, values)
        self.__dict__["_ipex_context"] = packed
        del own["codes"]

    def _plain_buffers(self) -> dict[str, Tensor | None]:
        return {"codes": self.codes, **{k: v for k, v in self.__dict__["_buffers"].items() if k != "codes"}}

    def _unpack(self) -> None:
        self.__dict__["_buffers"] = self._plain_buffers()
        self.__dict__.pop("_ipex_context", None)

    def as_plain_module(self) -> WeightOnlyLinear:
        """Return the module that this one was."""
        plain = WeightOnlyLinear.__new__(WeightOnlyLinear)
        state = {k: v for k, v in self.__dict__.items() if k != "_ipex_context"}
        plain.__dict__.update(state, _buffers=self._plain_buffers())
        return plain

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._unpack()
        try:
            return super()._apply(fn, recurse)
        finally:
            self.pack()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self.as_plain_module()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._unpack()
        try:
            super()._load_from_state_dict(*args, **kwargs)
        finally:
            self.pack()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _empty, (), self.as_plain_module().__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.pack()


def _codes_in(packed: Any) -> Tensor:
    with tracing_paused():  # to a trace they are a constant, however they are unpacked
        codes: Tensor = packed.__getstate__()[0][1]["codes"]
    return codes


def _empty() -> PackedWeightOnlyLinear:
    return PackedWeightOnlyLinear.__new__(PackedWeightOnlyLinear)


def pack_weight_only(module: WeightOnlyLinear) -> None:
    """Make this module compute with a packed op. It stays as it was where that fails."""
    module.__class__ = PackedWeightOnlyLinear
    try:
        PackedWeightOnlyLinear.pack(module)  # type: ignore[arg-type]
    except BaseException:
        module.__class__ = WeightOnlyLinear
        raise
