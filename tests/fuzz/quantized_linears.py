"""`ipex.quantization.dynamic` and `.weight_only` of a random network, against the same arithmetic in plain tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import ipex
from fuzz.program import Choices
from fuzz.quantized_check import Settings, Verdict, compare, inputs_of
from fuzz.quantized_networks import Drawing, Network, Node
from fuzz.quantized_reference import Reference
from fuzz.stages import round_trip
from ipex import quantization

SMALLEST = torch.finfo(torch.float32).tiny


class LinearReference(Reference):
    """Linears named in `rounds` multiply `weights`, and round each row of what they read if `rounds_rows`."""

    def __init__(self, network: Network, weights: dict[int, Tensor], rounds_rows: bool) -> None:
        super().__init__(network, [])
        self.weights, self.rounds_rows = weights, rounds_rows

    def _node(self, index: int, node: Node, inputs: list[Tensor], dtype: torch.dtype) -> Tensor:
        if index not in self.weights:
            return super()._node(index, node, inputs, dtype)
        x, made = inputs[0], self.network.layers[f"m{index}"]
        if self.rounds_rows:
            x = self._round_rows(x)
        return F.linear(x, self.weights[index].to(dtype), None if made.bias is None else made.bias.to(dtype))

    def _round_rows(self, x: Tensor) -> Tensor:
        low, high = x.amin(-1, keepdim=True).clamp_max(0), x.amax(-1, keepdim=True).clamp_min(0)
        scale = ((high - low) / 255).clamp_min(SMALLEST)
        zero, numbers = -low / scale, x / scale
        self.rounded += [zero, numbers + 100]  # all of them inside
        zero = zero.round().clamp_max(255)
        return ((numbers.round() + zero).clamp(0, 255) - zero) * scale


def rounded_to_int8(weight: Tensor) -> Tensor:
    scale = (weight.abs().amax(1, keepdim=True) / 127).clamp_min(SMALLEST)
    return (weight / scale).round().clamp(-127, 127).double() * scale.double()


def rounded(weight: Tensor, bits: int, group_size: int, symmetric: bool) -> Tensor:
    """Of a group of inputs the rounding with the smallest error, of a few ranges."""
    outputs, inputs = weight.shape
    size, half = min(group_size or inputs, inputs), 2 ** (bits - 1)
    groups = F.pad(weight, (0, -inputs % size)).view(outputs, -1, size)
    best = torch.full((*groups.shape[:2], 1), float("inf"))
    numbers = torch.empty_like(groups)
    for share in (1,) if bits == 8 else (1, -1, 0.9, -0.9, 0.8, -0.8) if symmetric else (1, 0.9, 0.8):
        if symmetric:
            scale = (groups.abs().amax(2, keepdim=True) / (half - 1)).clamp_min(SMALLEST) * share
            tried = (groups / scale).round().clamp(-half, half - 1) * scale
        else:
            low, high = (
                v * share
                for v in (groups.amin(2, keepdim=True).clamp_max(0), groups.amax(2, keepdim=True).clamp_min(0))
            )
            scale = (high / (2 * half - 1) - low / (2 * half - 1)).clamp_min(SMALLEST)
            offset = (-low / scale).round() - half
            tried = (((groups / scale).round() + offset).clamp(-half, half - 1) - offset) * scale
        error = (tried - groups).square().sum(2, keepdim=True)
        numbers, best = torch.where(error < best, tried, numbers), torch.minimum(error, best)
    return numbers.view(outputs, -1)[:, :inputs].double()


def check_linears(data: bytes) -> Verdict:
    choose = Choices(data)
    plan = Drawing(choose, wide=True).plan()
    network = Network(plan)
    settings = Settings(
        quantization.Recipe(), choose.chance(20), choose.pick((1, 1, 2)), choose.pick((None, None, 1, 4, 9)), 1.0, False
    )
    is_dynamic = choose.chance(50)
    dtype, group, symmetric = choose.pick(("int8", "int4")), choose.pick((None, 0, 32, 64)), choose.chance(50)
    x = inputs_of(plan.shapes[0], settings, False, 999)
    before = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module: Any
            round_weight: Callable[[Tensor], Tensor]
            if is_dynamic:
                module, round_weight = quantization.dynamic(network, x), rounded_to_int8
            else:
                module = quantization.weight_only(network, x, dtype=dtype, group_size=group, symmetric=symmetric)
                size = group if group is not None else 0 if dtype == "int8" else 128

                def round_weight(weight: Tensor) -> Tensor:
                    return rounded(weight, int(dtype[3:]), size, symmetric)

            taken = [d.node for d in ipex.explain(module).applied if d.pass_name == "quantize_linears"]
            weights = {
                index: round_weight(network.layers[f"m{index}"].weight)
                for index, node in enumerate(plan.nodes, 1)
                if node.op == "linear" and any(f" in layers.m{index} " in text for text in taken)
            }
            if len(weights) != len(taken):
                return Verdict("failed", f"quantised {taken}, found {list(weights)}")
            if not weights:
                return Verdict("nothing to quantise")
            reference = LinearReference(network, weights, is_dynamic)
            return compare(network, round_trip(module) if settings.saved else module, reference, settings)
    finally:
        torch.set_num_threads(before)
