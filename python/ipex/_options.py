"""What a caller of `jit_optimize` asks for, checked once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ._math_mode import FP32MathMode, number_of


@dataclass(frozen=True)
class Options:
    """The options of `jit_optimize`, where they are explained."""

    disable: Iterable[str] = ()
    dtype: torch.dtype | None = None
    fp32_math_mode: FP32MathMode | None = None
    stop_after: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.disable, str):
            raise TypeError(
                f"ipex.jit_optimize: expected a list of pass names in disable, got the string {self.disable!r}. "
                f"Take [{self.disable!r}]."
            )
        object.__setattr__(self, "disable", tuple(self.disable))  # an iterator is read once
        if self.dtype is not None:
            _check_dtype(self.dtype)
        if self.fp32_math_mode is not None:
            number_of(self.fp32_math_mode, "jit_optimize")

    def for_cpp(self) -> dict[str, Any]:
        """Return them as the keyword arguments of `_C.jit_optimize`."""
        return {
            "disable": list(self.disable),
            "dtype": None if self.dtype is None else str(self.dtype).removeprefix("torch."),
            "fp32_math_mode": None if self.fp32_math_mode is None else self.fp32_math_mode.value,
            "stop_after": self.stop_after or "",
        }


def _check_dtype(dtype: torch.dtype) -> None:
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"ipex.jit_optimize: expected a torch.dtype in dtype, got {dtype!r}. Take torch.bfloat16.")
    if dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(
            f"ipex.jit_optimize: expected torch.bfloat16 or torch.float16 in dtype, got {dtype}. "
            "Without one, a model keeps its own."
        )
