"""How much an op computes, and how much it reads and writes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .._explain.graphs import FinalNode
from .._explain.packed import PackedOp

Shape = Sequence[int]
LINEARS = ("ipex::linear_run", "ipex::quantized_linear_run", "ipex::dynamic_linear_run", "ipex::weight_only_linear_run")
CONVOLUTIONS = ("ipex::convolution_run", "ipex::quantized_convolution_run")
RECURRENT = ("ipex::lstm_run", "ipex::gru_run", "ipex::dynamic_lstm_run", "ipex::dynamic_gru_run")
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}


def operations(node: FinalNode, inputs: Sequence[Shape], result: Shape | None) -> float | None:
    """Return its multiplications and additions. None where it is not known, as for what only moves elements."""
    read = [shape for shape in inputs if shape]
    if result is None or not read:
        return None
    if node.kind in CONVOLUTIONS:
        return _convolution(node.layers[0], read[0], result)
    if node.layers and all(layer.op in LINEARS for layer in node.layers):
        rows = math.prod(read[0]) / max(read[0][-1], 1)
        return sum(2.0 * rows * math.prod(layer.weight) for layer in node.layers)
    if node.kind in ("ipex::matmul_run", "aten::matmul", "aten::bmm", "aten::mm"):
        return 2.0 * math.prod(result) * read[0][-1]
    if "attention" in node.kind and len(read) >= 3 and len(read[0]) >= 3:
        # Two products with as many factors as there are keys.
        return 4.0 * math.prod(read[0]) * read[1][-2]
    if node.kind in RECURRENT:
        steps = math.prod(read[0]) / max(read[0][-1], 1)
        return 2.0 * steps * sum(layer.weight_elements for layer in node.layers)
    return None


def bytes_moved(node: FinalNode, inputs: Sequence[Shape], result: Shape | None) -> float | None:
    """Return what it must read and write at least once: inputs, weights and the result."""
    if result is None:
        return None
    size = ELEMENT_BYTES.get(node.layers[0].dtype, 4) if node.layers else 4
    if node.kind in ("ipex::embedding", "aten::embedding"):
        return 2.0 * size * math.prod(result)  # of the table, only the rows of the result
    elements = sum(math.prod(shape) for shape in inputs if shape) + math.prod(result)
    return float(size * elements + sum(layer.weight_bytes for layer in node.layers))


def _convolution(layer: PackedOp, image: Shape, result: Shape) -> float:
    # Transposed, the weight begins with the channels of the input, and each of its pixels meets the whole of it.
    channels = image[1] if len(image) == len(layer.weight) else image[0]
    made = result[1] if len(result) == len(layer.weight) else result[0]
    is_transposed = channels == layer.weight[0] and (made != channels or math.prod(result) > math.prod(image))
    pixels = math.prod(image) / channels if is_transposed else math.prod(result) / made
    return 2.0 * pixels * math.prod(layer.weight)
