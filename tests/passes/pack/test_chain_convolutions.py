import pytest
import torch
from torch import Tensor, nn

import ipex
from ir import convolution
from ir import convolution_graph as graph
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_same,
    assert_unchanged,
    check_against_eager,
    contexts,
    kinds,
)

NAME = "chain_convolutions"

PIXELS, EACH = (8, 8, 1, 1), (8, 1, 3, 3)
EXPAND = convolution("x", "a", PIXELS)
DEPTHWISE = convolution("a", "b", EACH, 8)
PROJECT = convolution("b", "z", PIXELS)


@pytest.mark.parametrize(
    "lines",
    [
        (*EXPAND, *DEPTHWISE, *PROJECT),
        (*EXPAND, *DEPTHWISE, *convolution("b", "z", PIXELS, operand="%other")),
        (*EXPAND, *convolution("a", "z", EACH, 8)),
        (*convolution("x", "b", EACH, 8), *PROJECT),
    ],
    ids=["block", "residual", "no last", "no first"],
)
def test_fires(lines):
    result = assert_rewrites(NAME, graph(*lines))
    assert (result.count("ipex::convolution_chain_run"), result.count("ipex::convolution_run")) == (1, 0)
    layers = result.count("ipex::convolution_prepack")
    assert [d.reason for d in result.report] == [f"{layers} convolutions in one call"]


def test_one_after_the_other():
    lines = (*EXPAND, *DEPTHWISE, *convolution("b", "c", PIXELS), *convolution("c", "d", EACH, 8))
    result = assert_rewrites(NAME, graph(*lines, *convolution("d", "z", PIXELS)))
    assert (result.count("ipex::convolution_chain_run"), result.count("ipex::convolution_run")) == (2, 0)


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ((*EXPAND, *DEPTHWISE, *PROJECT, "%s : Tensor = aten::add_(%a, %other, %i)"), 1),
        ((*EXPAND, *convolution("a", "b", EACH, 8, layout="%no"), *convolution("b", "z", PIXELS, layout="%no")), 1),
        ((*convolution("x", "a", PIXELS, operand="%other"), *DEPTHWISE, *PROJECT), 1),
        ((*convolution("x", "a", (8, 8, 3, 3)), *DEPTHWISE, *PROJECT), 1),
        ((*convolution("x", "a", (8, 2, 1, 1), 4), *DEPTHWISE, *PROJECT), 1),
    ],
    ids=["second reader", "another layout", "operand of the first", "windows", "groups"],
)
def test_leaves_a_layer_out(lines, left):
    result = assert_rewrites(NAME, graph("%i : int = prim::Constant[value=1]()", *lines))
    assert (result.count("ipex::convolution_chain_run"), result.count("ipex::convolution_run")) == (1, left)


@pytest.mark.parametrize(
    "lines",
    [
        convolution("x", "z", EACH, 8),
        (*EXPAND, *convolution("a", "b", (8, 8, 3, 3)), *PROJECT),
        (*EXPAND, *convolution("a", "b", (16, 1, 3, 3), 8), *convolution("b", "z", (8, 16, 1, 1))),
        (*EXPAND, *convolution("a", "b", EACH, 8, operand="%other"), *PROJECT),
        (*EXPAND, *convolution("a", "b", EACH, 8, dtype="BFloat16"), *PROJECT),
        (*EXPAND, "%n : Tensor = aten::relu_(%x)", *DEPTHWISE, *PROJECT),
    ],
    ids=["alone", "not depthwise", "two for each channel", "operand", "16 bits", "overwritten"],
)
def test_declines(lines):
    assert_unchanged(NAME, graph(*lines), reason=None)


class Block(nn.Module):
    """As in MobileNetV2, between convolutions with windows."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
        self.expand, self.project = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 8, 1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = torch.nn.functional.relu6(self.depthwise(torch.nn.functional.relu6(self.expand(x))))
        return self.head(x + self.project(y))


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script):
    x = torch.randn(2, 3, 20, 21)
    also = (x[0], x.to(memory_format=torch.channels_last), torch.randn(1, 3, 110, 108), x * torch.inf)
    optimized = check_against_eager(Block(), x, script=script, also=also)
    assert kinds(optimized)["ipex::convolution_chain_run"] == 1
    assert kinds(optimized)["ipex::convolution_run"] == 2
    loaded = assert_round_trip(optimized, tmp_path, x)
    assert [context.describe() for context in contexts(loaded)] == [c.describe() for c in contexts(optimized)]


def test_can_be_switched_off():
    module = torch.jit.trace(Block().eval(), torch.randn(1, 3, 20, 21))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["ipex::convolution_run"] == 5


def test_in_the_executor():
    model, x = Block().eval(), torch.randn(1, 3, 20, 21)
    with torch.no_grad(), ipex.jit_passes():
        module = torch.jit.freeze(torch.jit.trace(model, x))
        for _ in range(3):
            assert_same(module(x), model(x))
        executed = [node.kind() for node in torch.jit.last_executed_optimized_graph().nodes()]
    assert executed.count("ipex::convolution_chain_run") == 1
