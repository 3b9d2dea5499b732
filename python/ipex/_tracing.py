"""Traces that hold for other values too."""

from __future__ import annotations

import warnings
from typing import Any

import torch


def trace_for_all_values(module: torch.nn.Module, inputs: tuple[Any, ...]) -> Any:
    """Return the trace of a module. Raises where a value that depends on the inputs becomes a constant in it.

    torch says so in a warning. The checks in its own modules cause it too; they only hold for the inputs at hand.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=torch.jit._trace.TracerWarning, module=r"torch\.(?!jit)")
        traced = torch.jit.trace(module, inputs, check_trace=False)
    for warning in caught:
        if issubclass(warning.category, torch.jit._trace.TracerWarning):
            first_sentence = str(warning.message).split(". ")[0]
            raise ValueError(f"the trace would hold for these inputs alone: {first_sentence}")
    return traced
