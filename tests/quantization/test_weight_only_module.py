"""A WeightOnlyLinear holds its codes packed, once, and answers whatever is asked of it as if they were plain."""

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
    return layer._ipex_context is not None and not {"codes", "scales", "offsets"} & set(layer._buffers)


def in_aten(layer: WeightOnlyLinear, x: Tensor) -> Tensor:
    """With the numbers that the codes stand for."""
    own = (layer.codes, layer.scales, layer.offsets, layer.order, layer.bias)
    return torch.ops.ipex.weight_only_linear(x, *own, layer.in_features, layer.group_size, 24, layer.values)


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
def test_it_is_packed_and_computes_what_aten_does(make, rows):
    layer, x = make(), torch.randn(rows, 64)
    assert is_packed(layer)
    assert_same(layer(x), in_aten(layer, x), tolerance=1e-5)
    assert layer._ipex_context.fallback_reasons() == []
    half = torch.randn(3, 64).bfloat16()
    assert layer(half).dtype == torch.bfloat16

    model = model_of(layer)
    expected, optimized = model(x), ipex.optimize(model)
    assert optimized[0]._ipex_context is layer._ipex_context  # no second weight
    assert_same(optimized(x), expected, tolerance=1e-5)
    notes = {(d.pass_name, d.node, d.reason) for d in ipex.explain(optimized)}
    assert ("weights_prepack", "0", "packed, as it was given") in notes


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_its_weight_is_what_an_op_reads_of_it(make):
    """It says dtype and shape, and holds no numbers."""
    layer, x = make(), torch.randn(5, 64)
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
        found = in_aten(layer, x)
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


def test_rows_of_fewer_bits_share_the_memory():
    layer, x = linear(bits=8), torch.randn(3, 64)
    other, codes = copy.deepcopy(layer), layer.codes
    other.row_bits = 8
    assert "rows=float32" in layer._ipex_context.describe()
    assert "rows=8 bits" in other._ipex_context.describe()
    assert torch.equal(other.codes, codes)
    assert_same(other(x), layer(x), tolerance=0.02)
    with pytest.raises(RuntimeError, match="expected row_bits of 8, 16 or 24, got 7"):
        other.row_bits = 7


@pytest.mark.parametrize("name", ["int4", "in an order", "nf4", "float8_e4m3fn"])
def test_what_is_asked_of_it(name):
    make = MAKERS[name]
    plain = model_of(make())
    optimized, x = ipex.optimize(plain), torch.randn(2, 64)
    layer = optimized[0]
    assert torch.equal(layer.codes, plain[0].codes)
    assert repr(layer) == repr(plain[0])
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


def test_a_graph_shares_the_memory():
    codes = torch.randint(-8, 8, (1024, 1024), dtype=torch.int8)
    before = ipex.memory_allocated()
    layer = WeightOnlyLinear(codes, torch.rand(1024, 32) / 999, bits=4, group_size=32)
    own = ipex.memory_allocated() - before
    assert own >= 5 * 2**17  # half a byte for each code, and the scales
    model, x = nn.Sequential(layer, nn.ReLU()).eval(), torch.randn(2, 1024)
    others = [copy.deepcopy(model), ipex.optimize(model), torch.jit.trace(model, x), ipex.jit_optimize(model, x)]
    assert ipex.memory_allocated() - before < 1.1 * own
    for other in others:
        assert_same(other(x), model(x), tolerance=1e-5)
    optimized = others[-1]
    assert "ipex::weight_only_linear_run" in str(optimized.graph)
    assert "relu" not in str(optimized.graph)  # it is a post-op of the graph's layer alone
    assert (model[0](x) < 0).any()

    buffer = io.BytesIO()
    torch.jit.save(optimized, buffer)
    buffer.seek(0)
    assert torch.equal(torch.jit.load(buffer)(x), optimized(x))


def test_gradients_of_inputs():
    layer = linear()
    with torch.enable_grad():
        found: list[Tensor] = []
        for call in (layer, lambda x: in_aten(layer, x)):
            x = torch.ones(2, 64, requires_grad=True)
            call(x).sum().backward()
            found.append(x.grad)
    assert_same(found[1], found[0], tolerance=1e-5)
