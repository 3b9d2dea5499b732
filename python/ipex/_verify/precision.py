"""How far results may lie from the original's, by what the optimised model computes in.

Bounds are relative to the largest element, and hold for whole models: errors add up from layer to layer.
"""

from __future__ import annotations

import torch

from .._explain.report import Report
from .._math_mode import FP32MathMode, get_fp32_math_mode

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "BF32": 2**-6, "float16": 2**-8, "bfloat16": 2**-5, "int8": 2**-3}


def precision_of(report: Report | None, expected: list[torch.dtype]) -> str:
    """Return the coarsest precision that the model computes in: of its packed ops, their math mode, and its results."""
    layers = [layer for node in report.final for layer in node.layers] if report else []
    found = {str(dtype).removeprefix("torch.") for dtype in expected if dtype.is_floating_point}
    found |= {layer.dtype for layer in layers}
    mode = "BF32" if get_fp32_math_mode() is FP32MathMode.BF32 else "FP32"
    if any((layer.math_mode if layer.math_mode in ("FP32", "BF32") else mode) == "BF32" for layer in layers):
        found.add("BF32")
    return max(found & TOLERANCE.keys(), key=TOLERANCE.__getitem__, default="float32")


def tolerance_for(precision: str, dtype: torch.dtype) -> float:
    """Return the tolerance for a result of this dtype."""
    return max(TOLERANCE[precision], TOLERANCE.get(str(dtype).removeprefix("torch."), 0.0))
