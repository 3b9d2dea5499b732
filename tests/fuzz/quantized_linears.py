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


def rounded(weight: Tensor, format: str, group_size: int, symmetric: bool) -> Tensor:
    """The numbers that the codes stand for. test_round_weight.py looks at how they are found."""
    codes, scales, offsets, values = torch.ops.ipex.round_weight(weight.detach(), format, group_size, symmetric)
    size, inputs = group_size or weight.shape[1], weight.shape[1]

    def of_inputs(of_groups: Tensor) -> Tensor:
        return of_groups.double().repeat_interleave(size, 1)[:, :inputs]

    plain = (codes if values is None else values[codes.long()]).double()
    return (plain if offsets is None else plain - of_inputs(offsets)) * of_inputs(scales)


def check_linears(data: bytes) -> Verdict:
    choose = Choices(data)
    plan = Drawing(choose, wide=True).plan()
    network = Network(plan)
    settings = Settings(
        quantization.Recipe(), choose.chance(20), choose.pick((1, 1, 2)), choose.pick((None, None, 1, 4, 9)), 1.0, False
    )
    is_dynamic = choose.chance(50)
    dtype, group, symmetric = choose.pick(("int8", "int4", "nf4")), choose.pick((None, 0, 32, 64)), choose.chance(50)
    symmetric |= dtype == "nf4"
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
                size = group if group is not None else {"int8": 0, "int4": 128, "nf4": 64}[dtype]

                def round_weight(weight: Tensor) -> Tensor:
                    return rounded(weight, dtype, size, symmetric)

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
