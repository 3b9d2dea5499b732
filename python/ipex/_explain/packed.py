"""The packed ops of an optimised module: what each says of itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "int4": 0.5, "float8_e4m3fn": 1, "float8_e5m2": 1}
_GATES = {"lstm": 4, "gru": 3}


@dataclass(frozen=True)
class PackedOp:
    """One layer with a packed weight, or a product of activations with post-ops."""

    op: str
    weight: tuple[int, ...]
    dtype: str
    post_ops: str
    math_mode: str
    weight_bytes: int
    kernels: tuple[str, ...] = ()
    fallback_reasons: tuple[str, ...] = ()
    weight_elements: int = 0
    weight_format: str = ""
    rows: str = ""  # what it rounds what it is given to, where it does


def packed_ops(module: Any) -> dict[str, tuple[PackedOp, ...]]:
    """Return the packed ops by the attribute that holds them; a chain of layers holds several."""
    found = {}
    index = 0
    while module.hasattr(f"packed_{index}"):
        name = f"packed_{index}"
        context = getattr(module, name) if not hasattr(module, "getattr") else module.getattr(name)
        layers = context.layers() if hasattr(context, "layers") else [context]
        # Observers of a model that is prepared to be quantised, and maps of rows, pack nothing.
        found[name] = tuple(packed_op(layer) for layer in layers if hasattr(layer, "facts"))
        index += 1
    return found


def packed_op(context: Any) -> PackedOp:
    """Read what a context says of itself."""
    facts: dict[str, Any] = dict(context.facts())
    weight, dtype = tuple(facts.get("weight", ())), facts.get("dtype", "float32")
    elements = math.prod(weight) if weight else _recurrent_elements(facts)
    weight_format = facts.get("weight_format", dtype)
    return PackedOp(
        facts["op"],
        weight,
        dtype,
        ", ".join(facts.get("post_ops", ())),
        facts.get("math_mode", ""),
        int(elements * _BYTES.get(weight_format, 4)) + facts.get("bfloat16_copy_bytes", 0),
        tuple(dict.fromkeys(context.primitive_kernels())) if hasattr(context, "primitive_kernels") else (),
        tuple(context.fallback_reasons()),
        elements,
        weight_format,
        facts.get("rows", ""),
    )


def _recurrent_elements(facts: dict[str, Any]) -> int:
    gates = next((count for name, count in _GATES.items() if name in facts["op"]), 0)
    if not gates:
        return 0
    width, units, state, layers, directions = (
        facts[name] for name in ("input", "hidden", "state", "layers", "directions")
    )
    total = 0
    for layer in range(layers):
        total += directions * gates * units * ((width if layer == 0 else directions * state) + state)
    return int(total + (layers * directions * state * units if state != units else 0))
