"""What an expression of a program gives, found out on the meta device, which has shapes and dtypes alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from fuzz.program import Program, Shape, Value

DTYPES = ("float32", "float64", "bfloat16", "float16", "int8", "uint8", "int16", "int32", "int64", "bool")
LARGEST = 20000  # elements: what is larger takes too long


def meta(shape: Shape, dtype: str) -> torch.Tensor:
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def metas(values: list[Value]) -> dict[str, torch.Tensor]:
    return {v.name: meta(v.shape, v.dtype) for v in values}


def evaluate(text: str, given: Mapping[str, Any]) -> Any:
    """What the text gives, where `given` says what its names are; None where eager refuses it."""
    names = {name.replace("self.", "self_"): value for name, value in given.items()}
    try:
        with torch.no_grad():
            return eval(text.replace("self.", "self_"), {"torch": torch, "F": F, **names})
    except Exception:
        return None


def result(text: str, given: Mapping[str, Any]) -> tuple[Shape, str] | None:
    """Shape and dtype of what it gives; None where that is no tensor that programs can go on with."""
    found = evaluate(text, given)
    if not isinstance(found, torch.Tensor) or name_of(found.dtype) not in DTYPES or found.numel() > LARGEST:
        return None
    return tuple(found.shape), name_of(found.dtype)


def let(p: Program, text: str, given: Mapping[str, Any]) -> Value | None:
    """A new value, if the text gives one."""
    found = result(text, given)
    return None if found is None else p.let(text, *found)
