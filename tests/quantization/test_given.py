"""Models that torch.ao.quantization quantised compute in 8 bits between its roundings, with eager's values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.ao.quantization.fx._decomposed
import torch.nn.functional as F
from torch import Tensor, nn
from torch.ao.quantization import (
    FakeQuantize,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    QConfig,
    QConfigMapping,
    disable_observer,
    get_default_qconfig_mapping,
)
from torch.ao.quantization.quantize_fx import convert_to_reference_fx, prepare_fx, prepare_qat_fx

import ipex
from support import assert_round_trip, contexts, kinds

pytestmark = pytest.mark.filterwarnings("ignore")  # torch says of each step that it will go


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.second, self.second_norm = nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)
        self.relu, self.last_relu = nn.ReLU(), nn.ReLU()
        self.shortcut = nn.Conv2d(before, after, 1, stride) if before != after else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.first_norm(self.first(x)))
        return self.last_relu(self.second_norm(self.second(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A small one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.relu = nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 32, 1))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.pool(self.relu(self.norm(self.stem(x)))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Transformer(nn.Module):
    """Two layers of an encoder, spelled out so that FX can trace it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    **{name: nn.Linear(32, 32) for name in ("query", "key", "value", "out")},
                    "wide": nn.Linear(32, 64),
                    "narrow": nn.Linear(64, 32),
                    "first": nn.LayerNorm(32),
                    "second": nn.LayerNorm(32),
                }
            )
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            q, k, v = (layer[name](x).view(-1, 9, 4, 8).transpose(1, 2) for name in ("query", "key", "value"))
            scores = (q @ k.transpose(-1, -2) * 8**-0.5).softmax(-1)
            x = layer["first"](x + layer["out"]((scores @ v).transpose(1, 2).reshape(-1, 9, 32)))
            x = layer["second"](x + layer["narrow"](F.gelu(layer["wide"](x))))
        return x


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "resnet": (ResNet, (2, 3, 32, 32), 9),  # convolutions and linears
    "transformer": (Transformer, (2, 9, 32), 12),
}


def calibrated(name: str, prepare: Callable[[nn.Module, Tensor], nn.Module]) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(3)
    make, shape, _ = MODELS[name]
    model = make()
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_(0, 0.2)
            norm.running_var.uniform_(0.5, 1.5)
    x = torch.randn(shape)
    prepared = prepare(model, x)
    with torch.no_grad():
        for _ in range(3):
            prepared(torch.randn(shape))
    return prepared, x


def steps_between(actual: Tensor, expected: Tensor) -> float:
    """How far the two are apart, in steps of the 8-bit numbers that the expected values are."""
    values = expected.unique()
    return ((actual - expected).abs().max() / (values[1:] - values[:-1]).min()).item()


def assert_taken(module: torch.jit.ScriptModule, layers: int) -> None:
    found = kinds(module)
    assert found["ipex::quantized_convolution_run"] + found["ipex::quantized_linear_run"] == layers
    assert found["ipex::convolution_run"] + found["ipex::linear_run"] == 0
    assert not any(kind.startswith(("aten::quantize", "aten::dequantize", "aten::fake_quantize")) for kind in found)


@pytest.mark.parametrize("backend", ["x86", "fbgemm", "qnnpack", "onednn"])
@pytest.mark.parametrize("name", MODELS)
def test_reference_models_of_fx(name, backend, tmp_path):
    mapping = get_default_qconfig_mapping(backend)
    prepared, x = calibrated(name, lambda model, x: prepare_fx(model.eval(), mapping, (x,)))
    model = convert_to_reference_fx(prepared)
    module = ipex.jit_optimize(model, x)
    assert_taken(module, MODELS[name][2])
    with torch.no_grad():
        expected, actual = model(x), module(x)
        # Roundings in the middle may fall to the other side, and are multiplied by what follows.
        assert (actual - expected).norm() < 0.02 * expected.norm()
        assert_layers_are_within_a_step(model, x)
    assert actual.stride() == expected.stride()
    assert_round_trip(module, tmp_path, x)


def assert_layers_are_within_a_step(model: torch.fx.GraphModule, x: Tensor) -> None:
    """Each prefix of the model that ends with a rounding, from inputs that are eager's."""

    class Seen(torch.fx.Interpreter):
        def run_node(self, node):
            result = super().run_node(node)
            seen[node.name] = result
            return result

    seen: dict[str, object] = {}
    Seen(model).run(x)
    checked = 0
    for node in model.graph.nodes:
        if node.op != "call_module" or not type(model.get_submodule(node.target)).__module__.startswith("torch.ao"):
            continue
        dequantize, quantize = node.args[0], next(iter(node.users))
        if getattr(quantize, "target", None) is not torch.quantize_per_tensor or dequantize.target != "dequantize":
            continue
        before = dequantize.args[0]
        scale, zero_point = seen[quantize.args[1].name], seen[quantize.args[2].name]
        given, layer = seen[before.name], model.get_submodule(node.target)

        class One(nn.Module):
            def __init__(self, layer=layer, out=(scale, zero_point), given=given) -> None:
                super().__init__()
                self.layer, self.out = layer, out
                self.into = float(given.q_scale()), int(given.q_zero_point())

            def forward(self, y: Tensor) -> Tensor:
                y = torch.quantize_per_tensor(y, *self.into, torch.quint8).dequantize()
                return torch.quantize_per_tensor(self.layer(y), *self.out, torch.quint8).dequantize()

        one, y = One().eval(), given.dequantize()
        module = ipex.jit_optimize(one, y)
        assert kinds(module)["ipex::quantized_convolution_run"] + kinds(module)["ipex::quantized_linear_run"] == 1
        off = (module(y) - one(y)).abs() / scale
        assert off.max() < 1.01
        assert (off > 0.5).float().mean() < 0.01
        checked += 1
    assert checked >= 3


def fake_quantize(low: int, high: int, dtype: torch.dtype) -> Callable[[], FakeQuantize]:
    return FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, quant_min=low, quant_max=high, dtype=dtype)


FAKE_WEIGHTS = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver,
    ch_axis=0,
    quant_min=-128,
    quant_max=127,
    dtype=torch.qint8,
    qscheme=torch.per_channel_symmetric,
)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_quantization_aware_training(name):
    """As they are trained, with fake_quantize of activations, of 7 bits here, and weights."""
    mapping = QConfigMapping().set_global(QConfig(fake_quantize(0, 127, torch.quint8), FAKE_WEIGHTS))
    prepared, x = calibrated(name, lambda model, x: prepare_qat_fx(model.train(), mapping, (x,)))
    model = prepared.apply(disable_observer).eval()
    module = ipex.jit_optimize(model, x)
    assert_taken(module, MODELS[name][2])
    with torch.no_grad():
        expected = model(x)
        assert (module(x) - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(0, 255, torch.quint8), (-128, 127, torch.qint8), (-64, 63, torch.qint8), (-9, 3, torch.qint8)],
)
def test_numbers_of_every_range(low, high, dtype):
    """A single layer: its values are eager's, within a step."""
    into, out = fake_quantize(low, high, dtype)(), fake_quantize(low, high, dtype)()
    layer = nn.Linear(16, 8)
    layer.weight.data = torch.randint(-128, 128, (8, 16)).float() / 256
    model, x = nn.Sequential(into, layer, nn.ReLU(), out), torch.randn(64, 16)
    with torch.no_grad():
        model(x)
        model.apply(disable_observer).eval()
        module = ipex.jit_optimize(model, 2 * x)
        assert_taken(module, 1)
        steps = (module(2 * x) - model(2 * x)).abs() / out.scale
        assert steps.max() < 1.01
        assert (steps > 0.5).float().mean() < 0.02
        assert module(2 * x).unique().numel() <= high - low + 1


class Decomposed(nn.Module):
    """What prepare_pt2e and convert_pt2e make of a linear and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randint(-127, 128, (8, 4, 3, 3), dtype=torch.int8)
        self.register_buffer("weight", weight)
        self.register_buffer("scales", torch.rand(8) / 100 + 0.001)
        self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))
        self.register_buffer("matrix", torch.randint(-127, 128, (6, 8), dtype=torch.int8))
        self.bias = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        ops = torch.ops.quantized_decomposed
        unsigned, signed = (0, 255, torch.uint8), (-128, 127, torch.int8)
        x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, 0.02, 128, *unsigned), 0.02, 128, *unsigned)
        weight = ops.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        y = F.relu(F.conv2d(x, weight, self.bias, padding=1))
        y = ops.dequantize_per_tensor(ops.quantize_per_tensor(y, 0.05, -128, *signed), 0.05, -128, *signed)
        y = y.mean((2, 3))
        y = ops.dequantize_per_tensor(ops.quantize_per_tensor(y, 0.04, -128, *signed), 0.04, -128, *signed)
        matrix = ops.dequantize_per_tensor(self.matrix, 0.01, 0, -127, 127, torch.int8)
        return F.linear(y, matrix)


def test_decomposed_ops(tmp_path):
    model, x = Decomposed().eval(), torch.randn(2, 4, 7, 6)
    with torch.no_grad():
        module = ipex.jit_optimize(torch.jit.trace(model, x))
        assert_taken(module, 2)
        assert not any("quantized_decomposed" in kind for kind in kinds(module))
        expected = model(x)
        # A step of 0.04, times the sum of a row of the last weight.
        assert (module(x) - expected).abs().max() <= 0.04 * 0.01 * model.matrix.float().abs().sum(1).max()
    assert_round_trip(module, tmp_path, x)


class Gated(nn.Module):
    """What multiplies a layer's result is rounded too; layers take only what is added to it in 8 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.layer.weight.data = torch.randint(-127, 128, (8, 8)).float() / 64

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        x = torch.fake_quantize_per_tensor_affine(x, 0.02, 128, 0, 255)
        return self.layer(x) * torch.fake_quantize_per_tensor_affine(gate, 0.03, 100, 0, 255)


def test_a_factor_is_read_in_floats():
    model, x, gate = Gated().eval(), torch.randn(5, 8), torch.randn(5, 8)
    with torch.no_grad():
        module = ipex.jit_optimize(torch.jit.trace(model, (x, gate)))
        assert kinds(module)["ipex::quantized_linear_run"] == 1
        assert "operands=[float32]" in contexts(module)[0].describe()
        torch.testing.assert_close(module(x, gate), model(x, gate), rtol=1e-4, atol=1e-4)


def reasons(module: torch.jit.ScriptModule) -> str:
    return "\n".join(f"{d.pass_name} {d.node}: {d.reason}" for d in ipex.explain(module) if not d.applied)


def test_what_is_declined_says_why():
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.free, self.rounded = nn.Linear(8, 8), nn.Linear(8, 8)
            self.rounded.weight.data = torch.randint(-127, 128, (8, 8)).float() / 64

        def forward(self, x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
            zero = torch.zeros((), dtype=torch.int64)
            rounded = torch.quantize_per_tensor(x, 0.02, 128, torch.quint8).dequantize()
            wide = torch.quantize_per_tensor(x, 0.02, 0, torch.qint32).dequantize()
            moving = torch.quantize_per_tensor(x, scale, zero, torch.quint8).dequantize()
            return self.free(rounded), self.rounded(wide), self.rounded(moving)

    model, x = Kept().eval(), torch.randn(3, 8)
    with torch.no_grad():
        module = ipex.jit_optimize(torch.jit.trace(model, (x, torch.tensor(0.03)), check_trace=False))
        for actual, expected in zip(module(x, torch.tensor(0.01)), model(x, torch.tensor(0.01))):
            assert (actual - expected).abs().max() < 0.05
    said = reasons(module)
    assert "its weight is not one of 8-bit numbers" in said
    assert "its numbers are QInt32, not of 8 bits" in said
    assert "its scale is not constant, or there are several" in said
    assert "what it reads is not rounded to 8-bit numbers" in said
    assert kinds(module)["ipex::quantized_linear_run"] == 0


def test_folded_scales_leave_the_numbers_of_a_weight():
    """What is folded into the weight of a rounded layer multiplies its scales."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8)
            self.layer.weight.data = torch.randint(-128, 128, (8, 4, 3, 3)).float() * torch.rand(8, 1, 1, 1) / 50
            self.norm.running_var.uniform_(0.3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.layer(torch.fake_quantize_per_tensor_affine(x, 0.03, 100, 0, 255)))

    model, x = Scaled().eval(), torch.randn(2, 4, 9, 9)
    before = model.layer.weight.clone()
    with torch.no_grad():
        module = ipex.jit_optimize(model, x)
        torch.testing.assert_close(module(x), model(x), rtol=1e-4, atol=1e-4)
    (context,) = contexts(module)
    numbers = context.__getstate__()[0][1]["weight"]
    ratio = before / numbers.where(numbers != 0, torch.ones_like(numbers)).float()
    spread = [row[n != 0] for row, n in zip(ratio.flatten(1), numbers.flatten(1))]
    assert all((row.max() - row.min()) < 1e-3 * row.abs().max() for row in spread)
