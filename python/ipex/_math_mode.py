"""How precise float32 products have to be: for the process here, for one model in `jit_optimize`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import torch

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
    """Set the mode of the process. Every model without a mode of its own follows it from its next call on.

    TF32 gives a warning and changes nothing: scripts that set it for a GPU run on.
    """
    _check(mode, "set_fp32_math_mode")
    _check_device(device, "set_fp32_math_mode")
    if not _C.set_fp32_math_mode(mode.value):
        warnings.warn(
            f"ipex.set_fp32_math_mode: expected FP32 or BF32, got {mode.name}, which CPUs do not have. "
            f"The mode stays {get_fp32_math_mode().name}.",
            stacklevel=2,
        )


def get_fp32_math_mode(device: str | torch.device = "cpu") -> FP32MathMode:
    """Return the mode of the process. It starts as what the environment variable IPEX_FP32_MATH_MODE says, or FP32."""
    _check_device(device, "get_fp32_math_mode")
    return FP32MathMode(_C.get_fp32_math_mode())


@contextmanager
def fp32_math_mode(mode: FP32MathMode, device: str | torch.device = "cpu") -> Iterator[None]:
    """Set the mode of the process, other threads included, for the length of a `with` block."""
    before = get_fp32_math_mode(device)
    number_of(mode, "fp32_math_mode")
    set_fp32_math_mode(mode, device)
    try:
        yield
    finally:
        set_fp32_math_mode(before, device)


def number_of(mode: FP32MathMode, caller: str) -> int:
    """Return the number of a mode that CPUs have. Raises for the others."""
    _check(mode, caller)
    if mode is FP32MathMode.TF32:
        raise ValueError(f"ipex.{caller}: expected FP32 or BF32, got TF32, which CPUs do not have.")
    return int(mode.value)


def _check(mode: FP32MathMode, caller: str) -> None:
    if not isinstance(mode, FP32MathMode):
        raise TypeError(f"ipex.{caller}: expected an ipex.FP32MathMode, got {mode!r}. Take ipex.FP32MathMode.BF32.")


def _check_device(device: str | torch.device, caller: str) -> None:
    if str(device) != "cpu":
        raise ValueError(f"ipex.{caller}: expected the device 'cpu', got {str(device)!r}. ipex has no other.")
