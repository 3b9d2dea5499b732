"""How near is near: how far results may lie apart, by the precision of what computes them and of its weights.

Bounds are relative to the largest element, and hold for whole models: errors add up from layer to layer.
"""

from __future__ import annotations

import torch

from ._math_mode import FP32MathMode, get_fp32_math_mode

TOLERANCE = {
    "float64": 1e-9,
    "float32": 1e-4,
    "BF32": 2**-6,
    "float16": 2**-8,
    "bfloat16": 2**-5,
    "int8": 2**-3,
    "float8_e4m3fn": 2**-2,
    "float8_e5m2": 2**-1,
    "int4": 2**-1,  # twelve layers of random weights are 0.4 off
    "nf4": 2**-1,
    "rows16": 1e-3,  # weight-only linears that round what they are given to so many bits
    "rows8": 6e-2,
}


def name_of(dtype: torch.dtype) -> str:
    """Return the precision of a dtype. That of complex numbers is that of their parts."""
    return str(dtype.to_real() if dtype.is_complex else dtype).removeprefix("torch.")


def computed_in(dtype: torch.dtype) -> str:
    """Return the precision in which layers of this dtype compute, if they have no math mode of their own."""
    is_bf32 = dtype == torch.float32 and get_fp32_math_mode() is FP32MathMode.BF32
    return "BF32" if is_bf32 else name_of(dtype)


def coarsest(precisions: set[str]) -> str:
    """Return the precision that decides. What is not in the table counts for nothing."""
    return max(precisions & TOLERANCE.keys(), key=TOLERANCE.__getitem__, default="float32")


def tolerance_for(dtype: torch.dtype, precision: str = "float64") -> float:
    """Return the tolerance for a result of this dtype that was computed in this precision."""
    return max(TOLERANCE.get(precision, 0.0), TOLERANCE.get(name_of(dtype), 0.0))
