"""How near each layer of a quantised model is to the original's, and where numbers of 8 bits do not reach.

Optimising keeps the names of values: both models run once more, and what has one name in both is compared. Of 8-bit
numbers the op that makes them knows the scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._explain.graphs import final_nodes
from .._inputs import arguments, copied, in_order
from .._load_extension import _C
from .compare import compare

LAYERS = ("ipex::quantized_linear_run", "ipex::quantized_convolution_run")
SATURATED = 0.01  # a scale that is made of other data, and not an outlier


@dataclass(frozen=True)
class Layer:
    """An op that computes in 8 bits, or rounds to them.

    `signal_to_noise` of its result is in decibels, beside the original's. `beyond` is the share of the original's
    numbers that lie outside of what its 8-bit result can hold.
    """

    op: str
    name: str
    place: str
    signal_to_noise: float
    beyond: float

    @property
    def saturates(self) -> bool:
        """Whether so many numbers are cut off that the scale must be for other data."""
        return self.beyond > SATURATED

    def __str__(self) -> str:
        where = f"{self.op} %{self.name}{f' in {self.place}' if self.place else ''}"
        text = f"{where}: signal to noise {self.signal_to_noise:.0f} dB"
        if self.saturates:
            text += f", SATURATES: {100 * self.beyond:.1f}% of its numbers lie beyond its scale, calibrate with such"
        return text


def quantized_layers(
    original: torch.jit.ScriptModule, optimized: torch.jit.ScriptModule, inputs: Any
) -> tuple[Layer, ...]:
    """Return the layers in the order of the graph: those whose results the original has too."""
    scales = dict(_scales(optimized))
    if not any(op.startswith("ipex::quantized_") for op, _, _ in scales.values()):
        return ()
    # Optimised without a single pass, the original keeps the names that the optimised model has.
    frozen = _C.jit_optimize(original._c, disable=_C.pass_names())
    taken = in_order(original, *arguments(copied(inputs), "verify"), "verify")
    names = [value.debugName() for value in frozen._get_method("forward").graph.inputs()]
    expected = {name: value for name, value in zip(names[1:], taken) if isinstance(value, Tensor)}
    expected |= dict(
        _C.intermediates(frozen, in_order(original, *arguments(copied(inputs), "verify"), "verify"), False)
    )
    given = dict(
        _C.intermediates(optimized._c, in_order(optimized, *arguments(copied(inputs), "verify"), "verify"), False)
    )
    nodes = {node.loaded_name or node.name: node for node in final_nodes(optimized._c) if node.method == "forward"}
    found = []
    for now, (op, source, scale) in scales.items():
        node, actual = nodes.get(now), given.get(now)
        first = nodes[source].name if source in nodes else source
        value = expected.get(node.name if node and op != "ipex::quantize" else first)
        if node is None or actual is None or value is None or actual.shape != value.shape:
            continue
        if not value.is_floating_point():
            continue
        floats, beyond = (actual, 0.0) if scale is None else (_floats(actual, *scale), _beyond(value, *scale))
        noise = compare(now, value.float(), floats.float(), 1.0).signal_to_noise
        found.append(Layer(op, node.name, node.module, noise, beyond))
    return tuple(found)


def _scales(module: torch.jit.ScriptModule) -> Iterator[tuple[str, tuple[str, str, tuple[float, int] | None]]]:
    """Give the results of quantised ops by name: the op, what it reads, and the scale of what are 8-bit numbers."""
    for node in module.graph.nodes():
        kind = node.kind()
        inputs = list(node.inputs())
        if kind in LAYERS:
            scale = dict(getattr(module, inputs[1].node().s("name")).facts())["result"]
        elif kind == "ipex::quantize":
            scale = _scale(inputs[1:3])
            if inputs[3].toIValue() is not None:
                continue  # smoothed: the original has no such tensor
        elif ".bytes(" in node.schema():
            scale = _scale(inputs[-2:])
        else:
            continue
        yield next(iter(node.outputs())).debugName(), (kind, inputs[0].debugName(), scale)


def _scale(constants: list[Any]) -> tuple[float, int]:
    scale, zero_point = (value.toIValue() for value in constants)
    return float(scale), int(zero_point)


def _floats(numbers: Tensor, scale: float, zero_point: int) -> Tensor:
    return (numbers.float() - zero_point) * scale if numbers.dtype == torch.uint8 else numbers


def _beyond(value: Tensor, scale: float, zero_point: int) -> float:
    low, high = (-0.5 - zero_point) * scale, (255.5 - zero_point) * scale
    return ((value < low) | (value > high)).double().mean().item()
