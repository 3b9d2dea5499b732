"""`ipex.optimize` packs a WeightOnlyLinear: it computes as before, and nothing that can be asked of it changes."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from ipex.quantization import WeightOnlyLinear
from support import assert_same


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def linear(bits: int = 4, order: bool = False, offsets: bool = True) -> WeightOnlyLinear:
    top = 1 << (bits - 1)
    return WeightOnlyLinear(
        torch.randint(-top, top, (48, 64)).to(torch.int8),
        torch.rand(48, 2) / 64,
        torch.randint(-2, 2, (48, 2)).float() if offsets else None,
        torch.randperm(64) if order else None,
        torch.randn(48),
        bits=bits,
        group_size=32,
    )


def of_a_format(form: str) -> WeightOnlyLinear:
    codes, scales, _, values = torch.ops.ipex.round_weight(torch.randn(48, 64), form, 32, True)
    return WeightOnlyLinear(
        codes, scales, bias=torch.randn(48), bits=4 if form == "nf4" else 8, group_size=32, values=values
    )


def model_of(layer: WeightOnlyLinear) -> nn.Module:
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(48, 8)).eval()


def is_packed(layer: nn.Module) -> bool:
    return "_ipex_context" in layer.__dict__ and "codes" not in layer._buffers


MAKERS = {
    "int4": linear,
    "int8": lambda: linear(bits=8),
    "in an order": lambda: linear(bits=8, order=True),
    "without offsets": lambda: linear(offsets=False),
    "nf4": lambda: of_a_format("nf4"),
    "float8_e4m3fn": lambda: of_a_format("float8_e4m3fn"),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("rows", [1, 5, 70])
def test_it_is_packed_and_computes_as_before(make, rows):
    model, x = model_of(make()), torch.randn(rows, 64)
    expected = model(x)
    optimized = ipex.optimize(model)
    assert is_packed(optimized[0])
    assert not is_packed(model[0])
    assert isinstance(optimized[0], WeightOnlyLinear)
    assert_same(optimized(x), expected, tolerance=1e-5)
    assert optimized[0]._ipex_context.fallback_reasons() == []
    assert ("weights_prepack", "0", "packed") in {(d.pass_name, d.node, d.reason) for d in ipex.explain(optimized)}
    half = torch.randn(3, 64).bfloat16()
    assert optimized[0](half).dtype == torch.bfloat16


@pytest.mark.parametrize("is_packed_now", [False, True])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_its_weight_is_what_an_op_reads_of_it(make, is_packed_now):
    """It says dtype and shape, and holds no numbers."""
    layer, x = make(), torch.randn(5, 64)
    if is_packed_now:
        layer = ipex.optimize(nn.Sequential(layer).eval())[0]
        assert is_packed(layer)
    weight = layer.weight
    assert (weight.dtype, tuple(weight.shape), weight.device.type) == (torch.float32, (48, 64), "cpu")
    with pytest.raises(RuntimeError, match="invalid python storage"):
        weight.untyped_storage().data_ptr()
    bias = 0 if layer.bias is None else layer.bias
    torch.testing.assert_close(x @ weight.t() + bias, layer(x), rtol=1e-5, atol=1e-5)
    for written in (weight, weight.data):
        with pytest.raises(RuntimeError, match="expected no write to a weight that is kept as codes"):
            written.mul_(2)
    other = copy.deepcopy(layer).bfloat16().weight
    assert other.dtype == torch.bfloat16
    assert torch.equal(other.float(), weight.bfloat16().float())
    assert "weight" not in layer.state_dict()


def test_a_call_makes_few_numbers_at_once():
    """As it is, a head of 150,000 rows would take gigabytes."""
    outputs, inputs, most = 2_500, 640, 1 << 19
    codes = torch.randint(-8, 8, (outputs, inputs), dtype=torch.int8)
    scales, offsets = torch.rand(2, outputs, inputs // 32).unbind()
    order, bias, x = torch.randperm(inputs), torch.randn(outputs), torch.randn(3, inputs)
    layer = WeightOnlyLinear(codes, scales, offsets, order, bias, bits=4, group_size=32)
    numbers = (codes - offsets.repeat_interleave(32, 1)) * scales.repeat_interleave(32, 1)
    with torch.profiler.profile(record_shapes=True) as profile:
        found = layer(x)
    torch.testing.assert_close(found, F.linear(x[:, order], numbers, bias), rtol=1e-4, atol=1e-3)
    weights = [event.input_shapes[1] for event in profile.events() if event.name == "aten::linear"]
    assert sum(rows for rows, _ in weights) == outputs
    assert all(rows * inputs <= most for rows, _ in weights)


def test_a_trace_reads_the_dtype_and_numbers_of_its_weight():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = linear()

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.to(self.layer.weight.dtype)) @ self.layer.weight

    model, x = Tied().eval(), torch.randn(2, 64)
    for each in (model, ipex.optimize(model)):
        assert_same(torch.jit.trace(each, x.double())(x.double()), model(x), tolerance=1e-5)


def test_in_place_and_without_the_knob():
    model, x = model_of(linear()), torch.randn(2, 64)
    expected = model(x)
    assert not is_packed(ipex.optimize(model, weights_prepack=False)[0])
    assert ipex.optimize(model, inplace=True) is model
    assert is_packed(model[0])
    assert_same(model(x), expected, tolerance=1e-5)


@pytest.mark.parametrize("name", ["int4", "in an order", "nf4", "float8_e4m3fn"])
def test_what_is_asked_of_it(name):
    make = MAKERS[name]
    plain = model_of(make())
    optimized, x = ipex.optimize(plain), torch.randn(2, 64)
    layer = optimized[0]
    assert torch.equal(layer.codes, plain[0].codes)
    assert repr(layer).removeprefix("Packed") == repr(plain[0])
    state, expected = optimized.state_dict(), plain.state_dict()
    assert list(state) == list(expected)
    assert all(torch.equal(state[name], expected[name]) for name in expected)
    assert is_packed(layer)

    other = model_of(make())
    optimized.load_state_dict(other.state_dict())
    assert is_packed(layer)
    assert_same(optimized(x), other(x), tolerance=1e-5)

    buffer = io.BytesIO()
    torch.save(optimized, buffer)
    buffer.seek(0)
    for again in (copy.deepcopy(optimized), torch.load(buffer, weights_only=False)):
        assert is_packed(again[0])
        assert type(again[0]) is type(layer)
        assert torch.equal(again(x), optimized(x))

    optimized.double().float()
    assert is_packed(layer)
    assert_same(optimized(x), other(x), tolerance=1e-5)
    layer.bias = torch.zeros(48)
    assert_same(layer(x), other[0](x) - other[0].bias, tolerance=1e-5)


def test_a_trace_holds_the_integers():
    plain = model_of(linear())
    optimized, x = ipex.optimize(plain), torch.randn(2, 64)
    assert_same(torch.jit.trace(optimized, x)(x), plain(x), tolerance=1e-5)
    assert_same(ipex.jit_optimize(optimized, x)(x), plain(x), tolerance=1e-5)


def test_gradients_of_inputs():
    plain = model_of(linear())
    optimized = ipex.optimize(plain)
    with torch.enable_grad():
        found: list[Tensor] = []
        for model in (plain, optimized):
            x = torch.ones(2, 64, requires_grad=True)
            model[0](x).sum().backward()
            found.append(x.grad)
    assert_same(found[1], found[0], tolerance=1e-5)
