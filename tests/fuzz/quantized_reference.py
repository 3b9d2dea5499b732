"""The arithmetic of a quantised network in plain tensors.

Layers that the converted module computes in 8 bits read inputs, and residuals, that are rounded to the scales that the
module has; weights are rounded here. All else is the network's own arithmetic. It is done in float64, and in float32:
how far the two are apart says what of a result can be demanded, and which elements lie so near to the middle of two
8-bit numbers that either is right.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuzz.quantized_networks import (
    ACTIVATIONS,
    MOVES,
    Network,
    Node,
    attended,
    attention_heads,
    attention_scores,
    merged_heads,
    plain,
)

ADDITIONS = ("add", "add_", "radd")
WRITES = ("add_", "relu_", "zero_part")
# Where the scales stand among the inputs of an attention in 8 bits.
ATTENTIONS = {"ipex::attention_of_bytes": 7, "ipex::scaled_dot_product_attention_of_bytes": 8}
# What is added to the number of a probability before it is cut to an integer, key by key.
ROUNDINGS = (torch.tensor([0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15]) + 0.5) / 16


class Affine(NamedTuple):
    """value = (number - zero_point) * scale."""

    scale: float
    zero_point: int


class Layer(NamedTuple):
    """What the converted module has of a layer."""

    weight: Tensor  # int8, in the layer's own shape
    scales: Tensor
    input: Affine
    result: Affine | None
    operands: tuple[Affine | None, ...]
    post_ops: tuple[str, ...]
    factors: Tensor | None


class Mismatch(Exception):
    """The module is not made of this network."""


def layers_of(module: torch.jit.ScriptModule) -> list[Layer]:
    """Those that compute in 8 bits, in the order of the graph."""
    found = []
    for node in module.graph.nodes():
        if not re.fullmatch(r"ipex::quantized_\w+_run", node.kind()):
            continue
        context = getattr(module, node.inputsAt(1).node().s("name"))
        (_, tensors, _, post_ops), _ = context.__getstate__()
        numbers = tensors["affines"].tolist()
        affines = [Affine(s, int(z)) if s else None for s, z in zip(numbers[::2], numbers[1::2])]
        maker = node.inputsAt(0).node()
        factors = maker.inputsAt(3).toIValue() if maker.kind() == "ipex::quantize" else None
        assert affines[0] is not None
        weight, scales = tensors["weight"], tensors["weight_scales"]
        own = affines[0], affines[1], tuple(affines[2:])
        found.append(Layer(weight, scales, *own, tuple(post_ops), factors))
    return found


def attention_of(module: torch.jit.ScriptModule) -> tuple[Affine, ...] | None:
    """How query, key and value of the attention that computes in 8 bits are rounded."""
    found = [node for node in module.graph.nodes() if node.kind() in ATTENTIONS]
    assert len(found) <= 1
    for node in found:
        numbers = node.inputsAt(ATTENTIONS[node.kind()]).toIValue()
        return tuple(Affine(s, int(z)) for s, z in zip(numbers[::2], numbers[1::2]))
    return None


def plain_weight(made: nn.Module) -> tuple[Tensor, Tensor | None]:
    """With a batch_norm folded in."""
    if not isinstance(made, nn.Sequential):
        return made.weight.double(), None if made.bias is None else made.bias.double()
    layer, norm = made[0], made[1]
    factor = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    bias = layer.bias.double() if layer.bias is not None else 0
    return (
        layer.weight.double() * factor.view(-1, *[1] * (layer.weight.dim() - 1)),
        (bias - norm.running_mean.double()) * factor + norm.bias.double(),
    )


def outputs_of(made: nn.Module) -> int:
    layer = made[0] if isinstance(made, nn.Sequential) else made
    return layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels


def per_output(scales: Tensor, made: nn.Module) -> Tensor:
    """The scales, to multiply a weight of the layer's shape with."""
    layer = made[0] if isinstance(made, nn.Sequential) else made
    rank = layer.weight.dim()
    if not getattr(layer, "transposed", False):
        return scales.view(-1, *[1] * (rank - 1))
    groups = layer.groups
    each = scales.view(groups, -1).repeat_interleave(layer.weight.shape[0] // groups, 0)
    return each.view(*each.shape, *[1] * (rank - 2))


class Reference:
    """Computes the network with the layers of the converted module."""

    def __init__(self, network: Network, found: list[Layer], attention: tuple[Affine, ...] | None = None) -> None:
        self.network, self.nodes, self.attention = network, network.plan.nodes, attention
        self.readers: dict[int, list[tuple[int, int]]] = {}  # of a value: nodes, and which of their inputs it is
        live = self._live()
        seen = set[Node]()
        written: dict[int, int] = {}  # the node that gave a value its elements
        for index, node in enumerate(self.nodes, 1):
            if index not in live or (node in seen and f"m{index}" not in network.layers):
                continue  # two that compute the same are one
            seen.add(node)
            for place, value in enumerate(node.inputs):
                self.readers.setdefault(written.get(value, value), []).append((index, place))
            if node.op in WRITES:
                written[node.inputs[0]] = index
        self.layers: dict[int, tuple[Layer, Tensor, Tensor | None]] = {}
        for layer in found:
            self._place(layer)
        # Of what is added in 8 bits: (node, which of its inputs).
        self.added: dict[tuple[int, int], Affine] = {}
        # What layers give as numbers, for whoever reads it: by the node that their last post-op was.
        self.given: dict[int, Affine] = {}
        for index, (layer, *_) in self.layers.items():
            self._follow(index, layer)

    def _live(self) -> set[int]:
        """Nodes that a result depends on, and those that write what such a node reads, or the input."""
        memory = [0]  # the value whose memory a value may be
        for index, node in enumerate(self.nodes, 1):
            memory.append(memory[node.inputs[0]] if node.op in (*MOVES, *WRITES) else index)
        writes = [i for i, node in enumerate(self.nodes, 1) if node.op in WRITES]
        live, waiting = {0}, list(self.network.plan.returned)
        while waiting:
            index = waiting.pop()
            if index not in live:
                live.add(index)
                waiting += self.nodes[index - 1].inputs
            if not waiting:
                seen = {memory[i] for i in live}
                waiting = [i for i in writes if i not in live and memory[i] in seen]
        return live

    def _place(self, layer: Layer) -> None:
        """Find the layer that this one was made of, by its weight."""
        for index, node in enumerate(self.nodes, 1):
            if node.op not in ("linear", "convolution") or index in self.layers:
                continue
            made = self.network.layers[f"m{index}"]
            weight, bias = plain_weight(made)
            if layer.factors is not None and layer.factors.shape == weight.shape[-1:]:
                weight = weight / layer.factors.double()
            # A 1-d convolution is one of images of one row.
            numbers = layer.weight.squeeze(2) if layer.weight.dim() > weight.dim() else layer.weight
            if numbers.shape != weight.shape or len(layer.scales) != outputs_of(made):
                continue
            scales = per_output(layer.scales.double(), made)
            exact = weight / scales
            off = (exact - numbers.double()).abs()
            if off.max() > 0.5 + 1e-4 or exact.abs().max() > 127 + 1e-3:
                continue
            self.layers[index] = layer, numbers.double() * scales, bias
            return
        raise Mismatch(f"no layer has the weight of one with {layer.weight.shape}, {layer.post_ops}")

    def _follow(self, index: int, layer: Layer) -> None:
        """Find the additions that the layer does in 8 bits, and its result, along what only one node reads."""
        at, operands = index, list(layer.operands)
        if not any(operands) and not layer.result:
            return
        for text in layer.post_ops:
            name = text.split("(")[0]
            takes = name in (*ADDITIONS, "mul", "mul_", "rmul")
            while True:
                readers = self.readers.get(at, [])
                if len({reader for reader, _ in readers}) != 1:
                    raise Mismatch(f"m{index} has {layer.post_ops}, but {at} has readers {readers}")
                at, place = readers[0]
                node = self.nodes[at - 1]
                if node.op in MOVES and not takes:
                    continue
                break
            if takes != (node.op in ("add", "add_", "mul")) or not (takes or node.op in ACTIVATIONS):
                raise Mismatch(f"m{index} has {layer.post_ops}, but is read by {node}")
            if takes:
                affine = operands.pop(0)
                if affine is not None:
                    self.added[at, 1 - place] = affine
        if layer.result:
            self.given[at] = layer.result

    def compute(self, x: Tensor, dtype: torch.dtype) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        """The results, and what was rounded: numbers before rounding."""
        self.rounded: list[Tensor] = []
        values = [x.to(dtype).clone(memory_format=torch.preserve_format)]
        with torch.no_grad():
            for index, node in enumerate(self.nodes, 1):
                made = self._node(index, node, [values[i] for i in node.inputs], dtype)
                values.append(self._round(made, self.given.get(index)))
        return tuple(values[i] for i in self.network.plan.returned), self.rounded

    def _node(self, index: int, node: Node, inputs: list[Tensor], dtype: torch.dtype) -> Tensor:
        if index not in self.layers:
            inputs = [self._round(v, self.added.get((index, place))) for place, v in enumerate(inputs)]
            name = f"m{index}"
            if node.op == "attention" and self.attention:
                return self._attend(node, inputs)
            if name not in self.network.layers:
                return plain(node, inputs)
            made = self.network.layers[name].to(dtype)
            try:
                return made(inputs[0])  # type: ignore[no-any-return]
            finally:
                made.float()
        layer, weight, bias = self.layers[index]
        x = inputs[0] if layer.factors is None else inputs[0] * layer.factors.to(dtype)
        x, weight = self._round(x, layer.input), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
        if node.op == "linear":
            return F.linear(x, weight, bias)
        made = self.network.layers[f"m{index}"]
        made = made[0] if isinstance(made, nn.Sequential) else made
        convolve: Any = getattr(F, f"conv{'_transpose' if made.transposed else ''}{x.dim() - 2}d")
        if made.transposed:
            return convolve(x, weight, bias, made.stride, made.padding, made.output_padding, made.groups, made.dilation)
        return convolve(x, weight, bias, made.stride, made.padding, made.dilation, made.groups)  # type: ignore[no-any-return]

    def _attend(self, node: Node, inputs: list[Tensor]) -> Tensor:
        """Probabilities are numbers too, of which 255 is the largest score's, and are divided by their sum."""
        assert self.attention is not None
        form, _, is_causal = node.arguments
        q, k, v = (self._round(x, affine) for x, affine in zip(attention_heads(node, inputs), self.attention))
        if q.shape[-1] % 4 != 0 or q.numel() == 0:
            return merged_heads(attended(q, k, v, form, is_causal))
        scores = attention_scores(q, k, is_causal)
        keys = k.shape[-2]
        added = ROUNDINGS.to(q.dtype).repeat(-(-keys // len(ROUNDINGS)))[:keys]
        numbers = (scores - scores.amax(-1, keepdim=True)).exp() * 255 + added
        self.rounded.append(numbers - 0.5)  # cut, and not rounded to nearest
        numbers = numbers.floor()
        return merged_heads(numbers @ v / numbers.sum(-1, keepdim=True))

    def _round(self, x: Tensor, affine: Affine | None) -> Tensor:
        if affine is None:
            return x
        numbers = x / affine.scale + affine.zero_point
        self.rounded.append(numbers)
        return (numbers.round().clamp(0, 255) - affine.zero_point) * affine.scale
