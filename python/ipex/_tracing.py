"""Traces that hold for other values too, and whether they compute what the model does."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from ._torch_internals import TracerWarning, tree_flatten

# How far sums in another order may lie apart, relative to the largest element.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2**-6, torch.float16: 2**-9}


def trace_for_all_values(module: torch.nn.Module, inputs: tuple[Any, ...]) -> Any:
    """Return the trace of a module. Raises where a value that depends on the inputs becomes a constant in it.

    torch says so in a warning. The checks in its own modules cause it too; they only hold for the inputs at hand.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=TracerWarning, module=r"torch\.(?!jit)")
        traced = torch.jit.trace(module, inputs, check_trace=False)
    for warning in caught:
        if issubclass(warning.category, TracerWarning):
            first_sentence = str(warning.message).split(". ")[0]
            raise ValueError(f"the trace would hold for these inputs alone: {first_sentence}")
    return traced


def difference(expected: Any, actual: Any, low: torch.dtype | None = None) -> str | None:
    """Return how two results differ, if they do. `low` is the dtype that layers compute in, where it is another one."""
    (flat_expected, structure), (flat_actual, other) = tree_flatten(expected), tree_flatten(actual)
    if structure != other:
        return "its trace gives another structure of results"
    for e, a in zip(flat_expected, flat_actual):
        if not isinstance(e, Tensor) or not isinstance(a, Tensor):
            return "a result is no tensor"
        if (e.shape, e.dtype) != (a.shape, a.dtype):
            return "its trace gives results of another shape or dtype"
        tolerance = _TOLERANCE.get(e.dtype, 1e-12)
        if low is not None:
            tolerance = max(tolerance, _TOLERANCE[low])
        if not _is_close(e, a, tolerance):
            return "its trace gives other numbers"
    return None


def _is_close(expected: Tensor, actual: Tensor, tolerance: float) -> bool:
    if not expected.is_floating_point():
        return torch.equal(expected, actual)
    finite = expected[torch.isfinite(expected)]
    scale = max(finite.abs().max().item() if finite.numel() else 0.0, 1e-3)
    return torch.allclose(actual.double(), expected.double(), rtol=0, atol=tolerance * scale, equal_nan=True)
