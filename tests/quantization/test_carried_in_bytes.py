"""Concatenations, pools and sums between layers in int8, beside the same arithmetic in plain tensors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import support
from fuzz.quantized_check import Settings, compare, prepared_of
from fuzz.quantized_networks import Network, Node, Plan
from fuzz.quantized_reference import Reference, layers_of
from ipex.quantization import Recipe, convert
from support import contexts, kinds

SHAPE = (2, 8, 6, 6)


def convolution(of: int, channels: int, out: int, kernel: int = 1) -> Node:
    sizes = {"in_channels": channels, "out_channels": out, "kernel_size": (kernel, kernel)}
    return Node("convolution", (of,), (2, False, False, tuple({**sizes, "padding": (kernel // 2,) * 2}.items())))


def relu(of: int) -> Node:
    return Node("relu", (of,))


TWO_BRANCHES = (convolution(0, 8, 16), convolution(0, 8, 16, 3))
BLOCK = (convolution(0, 8, 16), convolution(1, 16, 16, 3))
CASES = {  # the nodes, and how many layers give 8-bit numbers
    "concat": ((*TWO_BRANCHES, Node("cat", (1, 2), (1,)), convolution(3, 32, 4)), 2),
    "concat of activations": (
        (*TWO_BRANCHES, relu(1), relu(2), Node("cat", (4, 3), (1,)), convolution(5, 32, 4)),
        2,
    ),
    "max_pool": ((convolution(0, 8, 16), relu(1), Node("max_pool", (2,), (2, 2, 0)), convolution(3, 16, 4)), 1),
    "max_pool with padding": (
        (convolution(0, 8, 16), Node("max_pool", (1,), (3, 1, 1)), convolution(2, 16, 4)),
        1,
    ),
    # Means are computed in floats, of which the next layer's numbers are made.
    "avg_pool": ((convolution(0, 8, 16), relu(1), Node("avg_pool", (2,), (2,)), convolution(3, 16, 4)), 0),
    # Convolutions of one input would become a single one.
    "add": ((*BLOCK, Node("add", (2, 1)), relu(3), convolution(4, 16, 4)), 2),
    "add to what is pooled": (
        (
            convolution(0, 8, 16),
            Node("max_pool", (1,), (3, 1, 1)),
            convolution(2, 16, 16, 3),
            Node("add", (3, 2)),
            relu(4),
            convolution(5, 16, 4),
        ),
        2,
    ),
    "add, and a concat of the sum": (
        (
            *BLOCK,
            Node("add", (2, 1)),
            relu(3),
            convolution(0, 8, 16),
            Node("cat", (4, 5), (1,)),
            convolution(6, 32, 4),
        ),
        3,
    ),
}


def converted(nodes: tuple[Node, ...]) -> tuple[Network, torch.jit.ScriptModule, Settings]:
    """With scales that are powers of two, so that sums are exact."""
    plan = Plan(nodes, (len(nodes),), (SHAPE,), 3, is_exact=True)
    settings = Settings(Recipe("min_max", forced=True), False, 1, None, 1.0, False)
    network = Network(plan)
    return network, convert(prepared_of(network, SHAPE, settings)), settings


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("channels_last", [False, True])
def test_to_the_bit(name, channels_last):
    nodes, _ = CASES[name]
    network, module, settings = converted(nodes)
    settings.channels_last = channels_last
    verdict = compare(network, module, Reference(network, layers_of(module)), settings)
    assert verdict.kind == "exact", verdict


@pytest.mark.parametrize("name", CASES)
def test_bytes_go_from_layer_to_layer(name):
    nodes, expected = CASES[name]
    _, module, _ = converted(nodes)
    layers = sum(node.op == "convolution" for node in nodes)
    assert kinds(module)["ipex::quantized_convolution_run"] == layers
    described = [context.describe() for context in contexts(module)]
    assert sum("result=uint8" in text for text in described) == expected, described


class AsksForSizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.first(x)
        return self.second(y), torch.zeros(y.size(0), y.size(1))


def test_sizes_are_those_of_floats():
    """Who asks for them alone, reads no floats."""
    x = torch.randn(4, 16)
    module = support.converted(AsksForSizes().eval(), x)
    assert ["result=uint8" in context.describe() for context in contexts(module)] == [True, False]
    assert module(x)[1].shape == (4, 16)
