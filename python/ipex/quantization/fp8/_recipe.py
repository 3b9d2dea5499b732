"""Which 8-bit floats, and how a scale follows from the largest magnitudes that were seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor


class _Numbers(NamedTuple):
    forward: torch.dtype  # of inputs and weights
    backward: torch.dtype  # of gradients


class Format(Enum):
    """8-bit floats: E4M3 reaches 448 with 3 bits of mantissa, E5M2 57344 with 2. HYBRID has E5M2 for gradients."""

    E4M3 = _Numbers(torch.float8_e4m3fn, torch.float8_e4m3fn)
    E5M2 = _Numbers(torch.float8_e5m2, torch.float8_e5m2)
    HYBRID = _Numbers(torch.float8_e4m3fn, torch.float8_e5m2)

    def dtypes(self) -> tuple[torch.dtype, torch.dtype, torch.dtype]:
        """Return those of a linear's input, its weight, and the gradient of its result."""
        return self.value.forward, self.value.forward, self.value.backward


# No scale is larger: its inverse would not be a normal float32.
_LARGEST_SCALE = 2.0**126


@dataclass(frozen=True)
class DelayedScaling:
    """A scale comes from the amaxes, the largest magnitudes, of earlier regions of `fp8_autocast`.

    A tensor is multiplied by `fp8_max / amax / 2**margin`, and what is out of range then becomes the largest number.
    A region in which the tensor was seen gives its history one amax, of at most `amax_history_len`; a region that saw
    a NaN or infinity gives none. Of every `interval` such regions, the first computes a new scale. A tensor that was
    never seen, or whose amax is zero, keeps its scale, which begins as 1.

    `amax_compute_algo` chooses the amax: "max", the largest of the history; "most_recent"; or a function that takes
    histories, float32 [length, tensors], the newest first and zeros at the end, and returns an amax for each tensor.
    `scaling_factor_compute_algo` replaces the formula: a function of amax, scale, fp8_max, all float32 [tensors], and
    the recipe, that returns the new scales. `reduce_amax=False` keeps the processes of a group apart.
    """

    margin: int = 0
    interval: int = 1
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 1024
    amax_compute_algo: str | Callable[[Tensor], Tensor] = "max"
    scaling_factor_compute_algo: Callable[[Tensor, Tensor, Tensor, DelayedScaling], Tensor] | None = None
    reduce_amax: bool = True

    def __post_init__(self) -> None:
        """Refuse what can't be meant."""
        for name, least in (("margin", None), ("interval", 1), ("amax_history_len", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
                wanted = "an integer" if least is None else "a positive integer"
                raise ValueError(f"ipex.quantization.fp8.DelayedScaling: expected {wanted} in {name}, got {value!r}.")
        if not isinstance(self.fp8_format, Format):
            raise ValueError(
                f"ipex.quantization.fp8.DelayedScaling: expected a Format in fp8_format, got {self.fp8_format!r}. "
                "Take Format.E4M3, Format.E5M2 or Format.HYBRID."
            )
        if not callable(self.amax_compute_algo) and self.amax_compute_algo not in ("max", "most_recent"):
            raise ValueError(
                "ipex.quantization.fp8.DelayedScaling: expected 'max', 'most_recent' or a function in "
                f"amax_compute_algo, got {self.amax_compute_algo!r}."
            )

    def amax(self, history: Tensor) -> Tensor:
        """Return the amax of each tensor out of its history, [length, tensors], the newest first."""
        if callable(self.amax_compute_algo):
            return self.amax_compute_algo(history)
        return history.amax(0) if self.amax_compute_algo == "max" else history[0]

    def scaled(self, amax: Tensor, scale: Tensor, largest: Tensor) -> Tensor:
        """Return the new scale of each tensor, whose format reaches `largest`."""
        if self.scaling_factor_compute_algo is not None:
            return self.scaling_factor_compute_algo(amax, scale, largest, self)
        factor = (largest / amax / 2.0**self.margin).clamp_max(_LARGEST_SCALE)
        return torch.where((amax > 0) & amax.isfinite(), factor, scale)
