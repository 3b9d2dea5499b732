"""How precise float32 products have to be: for the process here, for one model in `jit_optimize`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import torch

from . import _device_math_mode
from ._load_extension import _C


class FP32MathMode(Enum):
    """What convolutions, linears and matmuls of float32 tensors may do inside. A mode permits, it does not promise."""

    FP32 = 0
    """Products of float32 numbers."""
    TF32 = 1
    """A format of GPUs; no CPU has it."""
    BF32 = 2
    """Factors may be rounded to bfloat16, sums are float32. Only done where it is faster."""


def set_fp32_math_mode(mode: FP32MathMode = FP32MathMode.FP32, device: str | torch.device = "cpu") -> None:
    """Set the mode of the process, for one kind of device.

    On "cpu", every optimised model without a mode of its own follows it from its next call on. On "cuda" and "xpu" it
    sets torch's own switches for matrix products, convolutions and recurrent layers; those know FP32 and TF32. A mode
    that the device does not have gives a warning and changes nothing: scripts written for another device run on.
    """
    _check(mode, "set_fp32_math_mode")
    where = _device(device, "set_fp32_math_mode")
    is_set = _C.set_fp32_math_mode(mode.value) if where.type == "cpu" else mode is not FP32MathMode.BF32
    if not is_set:
        offered, kind = ("FP32 or BF32", "CPUs do") if where.type == "cpu" else ("FP32 or TF32", f"{where.type} does")
        warnings.warn(
            f"ipex.set_fp32_math_mode: expected {offered}, got {mode.name}, which {kind} not have. "
            f"The mode stays {get_fp32_math_mode(where).name}.",
            stacklevel=2,
        )
    elif where.type != "cpu":
        _device_math_mode.allow_tf32(where, mode is FP32MathMode.TF32)


def get_fp32_math_mode(device: str | torch.device = "cpu") -> FP32MathMode:
    """Return the mode of the process. On "cpu" it starts as what IPEX_FP32_MATH_MODE says, or FP32."""
    where = _device(device, "get_fp32_math_mode")
    if where.type == "cpu":
        return FP32MathMode(_C.get_fp32_math_mode())
    return FP32MathMode.TF32 if _device_math_mode.allows_tf32(where) else FP32MathMode.FP32


@contextmanager
def fp32_math_mode(mode: FP32MathMode, device: str | torch.device = "cpu") -> Iterator[None]:
    """Set the mode of the process, other threads included, for the length of a `with` block."""
    where = _device(device, "fp32_math_mode")
    if where.type != "cpu":
        switches = _device_math_mode.state(where)
        set_fp32_math_mode(mode, where)
        try:
            yield
        finally:
            _device_math_mode.restore(where, switches)
        return
    before = get_fp32_math_mode()
    number_of(mode, "fp32_math_mode")
    set_fp32_math_mode(mode)
    try:
        yield
    finally:
        set_fp32_math_mode(before)


def number_of(mode: FP32MathMode, caller: str) -> int:
    """Return the number of a mode that CPUs have. Raises for the others."""
    _check(mode, caller)
    if mode is FP32MathMode.TF32:
        raise ValueError(f"ipex.{caller}: expected FP32 or BF32, got TF32, which CPUs do not have.")
    return int(mode.value)


def _check(mode: FP32MathMode, caller: str) -> None:
    if not isinstance(mode, FP32MathMode):
        raise TypeError(f"ipex.{caller}: expected an ipex.FP32MathMode, got {mode!r}. Take ipex.FP32MathMode.BF32.")


def _device(device: str | torch.device, caller: str) -> torch.device:
    """Return the device. Raises where it has no modes, or is not there."""
    if not isinstance(device, (str, torch.device)):
        raise TypeError(f"ipex.{caller}: expected a device such as 'cpu', got {device!r}.")
    where = torch.device(device)
    if where.type != "cpu":
        _device_math_mode.check_device(where, caller)
    return where
