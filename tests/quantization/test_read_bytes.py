"""Sums, gates, means and concatenations that read 8-bit numbers, which a layer gives once for all its readers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from ipex.quantization import Recipe
from support import assert_rewrites, assert_round_trip, assert_unchanged, contexts, converted, graph_ir, kinds, told


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int = 24) -> None:
        super().__init__()
        self.stem, self.project = nn.Conv2d(16, channels, 3, padding=1), nn.Conv2d(channels, 24, 1)
        self.reduce, self.expand = nn.Conv2d(channels, 6, 1), nn.Conv2d(6, channels, 1)

    def gate(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.expand(F.relu(self.reduce(x.mean((2, 3), keepdim=True)))))

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.stem(x))
        return self.project(x * self.gate(x))


class JoinedGate(Gate):
    """The same of two layers side by side, and layers that read pieces of the result, as MixNet has it."""

    def __init__(self) -> None:
        super().__init__(48)
        self.left, self.right = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 32, 1)
        self.first, self.second = nn.Conv2d(24, 8, 1), nn.Conv2d(24, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([F.silu(self.left(x)), F.silu(self.right(x))], 1)
        first, second = (x * self.gate(x)).split([24, 24], 1)
        return torch.cat([self.first(first), self.second(second)], 1)


class Hierarchy(nn.Module):
    """Pieces that are added to what layers make of others, and joined, as Res2Net has it."""

    def __init__(self, pools: bool = False) -> None:
        super().__init__()
        self.pools = pools
        self.wide, self.last = nn.Conv2d(16, 40, 1), nn.Conv2d(40, 8, 1)
        self.layers = nn.ModuleList(nn.Conv2d(10, 10, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        pieces = F.relu(self.wide(x)).split(10, 1)
        made = [F.relu(self.layers[0](pieces[0]))]
        for layer, piece in zip(self.layers[1:], pieces[1:]):
            made.append(F.relu(layer(piece if self.pools else made[-1] + piece)))
        rest = F.avg_pool2d(pieces[3], 3, 1, 1) if self.pools else pieces[3]
        return self.last(torch.cat([*made, rest], 1))


class Shown(Gate):
    """The caller sees what the gate multiplies."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.silu(self.stem(x))
        return self.project(x * self.gate(x)), x


class InFloats(Gate):
    """What is multiplied goes on in floats."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.stem(x))
        return (x * self.gate(x)).cumsum(1) + self.project(x)


class Scaled(Hierarchy):
    """What the pieces are views of is overwritten between two layers that read them."""

    def forward(self, x: Tensor) -> Tensor:
        whole = F.relu(self.wide(x))
        pieces = whole.transpose(2, 3).split(10, 1)
        first = self.layers[0](pieces[0])
        whole.mul_(8)
        return self.last(torch.cat([first, *(layer(piece) for layer, piece in zip(self.layers, pieces[1:]))], 1))


def signal_to_noise(module: torch.jit.ScriptModule, model: nn.Module, x: Tensor) -> float:
    reference = model(x)
    return float(20 * torch.log10(reference.norm() / (module(x) - reference).norm()))


@pytest.mark.parametrize("model", [Gate, JoinedGate, Hierarchy, lambda: Hierarchy(pools=True)])
def test_layers_give_numbers_for_all(model, tmp_path):
    torch.manual_seed(0)
    model, x = model().eval(), torch.randn(2, 16, 9, 8)
    with torch.no_grad():
        module = converted(model, x)
        assert signal_to_noise(module, model, x) > 25
        # The last layer, and those of gates, give floats.
        described = [context.describe() for context in contexts(module)]
        floats = [text for text in described if "uint8" in text and "result=uint8" not in text]
        assert len(floats) <= 2, floats
        chains = told(module, "ipex::elementwise")
        assert not chains or any(chain["affines"] for chain in chains)
        assert any(d.pass_name == "read_bytes" and d.applied for d in ipex.explain(module))
        assert_round_trip(module, tmp_path, x)


@pytest.mark.parametrize("model", [Shown, InFloats])
def test_declines_what_somebody_reads_in_floats(model):
    torch.manual_seed(0)
    model, x = model().eval(), torch.randn(2, 16, 9, 8)
    with torch.no_grad():
        module = converted(model, x)
    assert "ipex::dequantize" not in kinds(module)
    assert not any(d.pass_name == "read_bytes" and d.applied for d in ipex.explain(module))


def test_pieces_are_rounded_when_they_are_read():
    torch.manual_seed(0)
    model, x = Scaled().eval(), torch.randn(2, 16, 9, 8)
    with torch.no_grad():
        assert signal_to_noise(converted(model, x), model, x) > 25


def test_a_gate_that_was_left_in_float_reads_floats():
    torch.manual_seed(0)
    model, x = Hierarchy().eval(), torch.randn(2, 16, 9, 8)
    prepared = ipex.quantization.prepare(model, x, Recipe(forced=True, float_layers=("wide",)))
    prepared(x)
    module = ipex.quantization.convert(prepared)
    described = [context.describe() for context in contexts(module)]
    assert not any("[40, 16, 1, 1]" in text and "uint8" in text for text in described)


FLOATS = (
    "%scale : float = prim::Constant[value=0.5]()",
    "%zero : int = prim::Constant[value=0]()",
    "%yes : bool = prim::Constant[value=1]()",
    "%none : NoneType = prim::Constant()",
    "%one : int[] = prim::Constant[value=[1, 1]]()",
    "%dims : int[] = prim::Constant[value=[2, 3]]()",
    '%steps : str[] = prim::Constant[value=["relu 0"]]()',
    "%x : Tensor = ipex::dequantize(%numbers, %scale, %zero)",
    "%list : Tensor[] = prim::ListConstruct(%x)",
)


@pytest.mark.parametrize(
    ("op", "after"),
    [
        ("elementwise(%list, %steps)", "elementwise("),
        ("adaptive_avg_pool2d(%x, %one)", "adaptive_avg_pool2d(%numbers, "),
        ("mean(%x, %dims, %yes)", "mean(%numbers, "),
        ("quantize(%x, %scale, %zero, %none)", "requantize(%numbers, "),
    ],
)
def test_ops_read_numbers(op, after):
    ir = graph_ir("%numbers : Tensor", *FLOATS, f"%y : Tensor = ipex::{op}", returns="%y")
    result = assert_rewrites("read_bytes", ir)
    assert result.count("ipex::dequantize") == 0
    assert f"ipex::{after}" in result.graph


def test_a_list_that_others_read_is_one_of_floats():
    both = (f"%{y} : Tensor = ipex::elementwise(%list, %steps)" for y in "yz")
    assert_unchanged("read_bytes", graph_ir("%numbers : Tensor", *FLOATS, *both, returns="%y, %z"), None)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("shape", [(2, 24, 9, 8), (1, 70, 5, 3), (3, 7, 1, 1)])
def test_ops_of_numbers_are_those_of_the_floats(shape, channels_last):
    torch.manual_seed(0)
    numbers, other = torch.randint(0, 256, shape, dtype=torch.uint8), torch.randn(*shape[:2], 1, 1)
    if channels_last:
        numbers = numbers.contiguous(memory_format=torch.channels_last)
    ops, scale, zero = torch.ops.ipex, 0.03, 93
    floats = ops.dequantize(numbers, scale, zero)
    for x, y in ((numbers, floats), (numbers[:, 1:6], floats[:, 1:6])):
        part = other[:, : x.shape[1]]
        for steps in (["mul 0 1"], ["add 0 1", "relu 2"], ["silu 0", "mul 2 1"]):
            expected = ops.elementwise([y, part], steps)
            affines = [scale, float(zero), 0, 0]
            actual = ops.elementwise([x, part], steps, affines=affines)
            assert torch.equal(actual, expected)
            assert actual.stride() == expected.stride()
            rounded = ops.elementwise([x, part], steps, affines=affines, rounded=[0.05, 20.0])
            assert torch.equal(rounded, ops.quantize(expected, 0.05, 20))
        assert torch.equal(ops.requantize(x, scale, zero, 0.05, 20), ops.quantize(y, 0.05, 20))
        assert ops.requantize(x, scale, zero, 0.05, 20).stride() == ops.quantize(y, 0.05, 20).stride()
        exact = y.double().mean((2, 3), keepdim=True)
        torch.testing.assert_close(ops.mean(x, [2, 3], True, affines[:2]).double(), exact, atol=1e-5, rtol=1e-5)
        pooled = ops.adaptive_avg_pool2d(x, [1, 1], affines[:2])
        torch.testing.assert_close(pooled.double(), exact, atol=1e-5, rtol=1e-5)
        assert pooled.stride() == ops.adaptive_avg_pool2d(y, [1, 1]).stride()
