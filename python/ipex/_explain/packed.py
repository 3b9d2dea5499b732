"""The packed ops of an optimised module: what each says of itself."""

from __future__ import annotations

import math
import re
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


def packed_ops(module: Any) -> dict[str, tuple[PackedOp, ...]]:
    """Return the packed ops by the attribute that holds them; a chain of layers holds several."""
    found = {}
    index = 0
    while module.hasattr(f"packed_{index}"):
        name = f"packed_{index}"
        context = getattr(module, name) if not hasattr(module, "getattr") else module.getattr(name)
        layers = context.layers() if hasattr(context, "layers") else [context]
        # A model that is prepared to be quantised has observers among them, which pack nothing.
        found[name] = tuple(packed_op(layer) for layer in layers if not hasattr(layer, "statistics"))
        index += 1
    return found


def packed_op(context: Any) -> PackedOp:
    """Read what a context says of itself."""
    text = str(context.describe())
    op, _, rest = text.partition("(")
    fields = _fields(rest.removesuffix(")"))
    weight = tuple(map(int, re.findall(r"\d+", fields.get("weight", ""))))
    dtype = fields.get("dtype", "float32")
    copies = sum(int(number) for number in re.findall(r"_copy=(\d+) bytes", text))
    elements = math.prod(weight) if weight else _recurrent_elements(op, fields)
    weight_format = fields.get("weight_format", dtype)
    weight_bytes = int(elements * _BYTES.get(weight_format, 4))
    return PackedOp(
        op,
        weight,
        dtype,
        fields.get("post_ops", "").strip(),
        fields.get("math_mode", ""),
        weight_bytes + copies,
        tuple(dict.fromkeys(context.primitive_kernels())) if hasattr(context, "primitive_kernels") else (),
        tuple(context.fallback_reasons()) if hasattr(context, "fallback_reasons") else (),
        elements,
        weight_format,
    )


def _fields(text: str) -> dict[str, str]:
    """Read "weight=8 3 7 7, post_ops=leaky_relu(0.1), add": what has no name goes on with the field before it."""
    fields: dict[str, str] = {}
    name = ""
    for part in re.split(r", ", text):
        begins = re.match(r"([a-z_0-9]+)=(.*)", part)
        if begins:
            name, fields[begins[1]] = begins[1], begins[2]
        elif name:
            fields[name] += ", " + part
    return fields


def _recurrent_elements(op: str, fields: dict[str, str]) -> int:
    gates = next((count for name, count in _GATES.items() if name in op), 0)
    if not gates:
        return 0
    width, units, state, layers, directions = (
        int(fields.get(name, 0)) for name in ("input", "hidden", "state", "layers", "directions")
    )
    total = 0
    for layer in range(layers):
        total += directions * gates * units * ((width if layer == 0 else directions * state) + state)
    return total + (layers * directions * state * units if state != units else 0)
