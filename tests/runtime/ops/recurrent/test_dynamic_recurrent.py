"""lstm and gru in int8: a step gives what plain tensors give, and everything else is made of steps, bit for bit."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex._torch_internals import has_lstm_of
from support import assert_same, fallback_reasons, kinds, own_thread_count

pytestmark = [
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported"),
]

LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU}
CLASSES = {"lstm": "DynamicLstmContext", "gru": "DynamicGruContext"}
SMALLEST = torch.finfo(torch.float32).tiny
# Widths below, at and above those of a register and a panel.
WIDTHS = [{"hidden_size": 1}, {"hidden_size": 16, "bias": False}, {"hidden_size": 40}, {"hidden_size": 131}]
CASES = [(kind, more) for kind in LAYERS for more in WIDTHS]
CASES += [("lstm", {"hidden_size": 40, "proj_size": 6}), ("lstm", {"hidden_size": 70, "proj_size": 33, "bias": False})]


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def packed(layer: nn.RNNBase) -> torch.ScriptObject:
    op = torch.ops.ipex.dynamic_lstm_prepack if isinstance(layer, nn.LSTM) else torch.ops.ipex.dynamic_gru_prepack
    return op(layer._flat_weights, layer.bias, layer.num_layers, layer.bidirectional, layer.batch_first)


def run(context: torch.ScriptObject, x: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    op = torch.ops.ipex.dynamic_lstm_run if len(states) == 2 else torch.ops.ipex.dynamic_gru_run
    return op(x, *states, context)


def states_of(layer: nn.RNNBase, batch: int) -> tuple[Tensor, ...]:
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    hidden = torch.randn(count, batch, layer.proj_size or layer.hidden_size)
    return (hidden, torch.randn(count, batch, layer.hidden_size)) if isinstance(layer, nn.LSTM) else (hidden,)


def rounded_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, and a scale for each row."""
    scale = (weight.abs().amax(1) / 127).clamp_min(SMALLEST)
    return (weight / scale[:, None]).round().clamp(-127, 127), scale


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Rows times weight, both rounded: float64 holds the integers."""
    codes, scale = rounded_weight(weight)
    low, high = x.amin(-1, keepdim=True).clamp_max(0), x.amax(-1, keepdim=True).clamp_min(0)
    row_scale = (high / 255 - low / 255).clamp_min(SMALLEST)
    zero = (-low * (1 / row_scale)).round().clamp_max(255)
    rows = ((x * (1 / row_scale)).round() + zero).clamp(0, 255)
    return ((rows - zero).double() @ codes.double().t()).float() * (row_scale * scale)


def expected_step(layer: nn.RNNBase, x: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The new states of a layer with one direction: the same arithmetic in plain tensors."""
    own = dict(layer.named_parameters())
    hidden = states[0][0]
    inputs, products = product(x, own["weight_ih_l0"]), product(hidden, own["weight_hh_l0"])
    if layer.bias:
        inputs, products = inputs + own["bias_ih_l0"], products + own["bias_hh_l0"]
    if isinstance(layer, nn.GRU):
        (r, z, n), (hr, hz, hn) = inputs.chunk(3, 1), products.chunk(3, 1)
        reset, update = (r + hr).sigmoid(), (z + hz).sigmoid()
        fresh = (n + reset * hn).tanh()
        return (((hidden - fresh) * update + fresh)[None],)
    i, f, g, o = (inputs + products).chunk(4, 1)
    cell = f.sigmoid() * states[1][0] + i.sigmoid() * g.tanh()
    new = o.sigmoid() * cell.tanh()
    return (product(new, own["weight_hr_l0"]) if layer.proj_size else new)[None], cell[None]


@pytest.mark.parametrize(("kind", "more"), CASES)
@pytest.mark.parametrize("batch", [1, 3, 9, 40])
def test_a_step_is_that_of_plain_tensors(kind, more, batch):
    layer, x = LAYERS[kind](37, **more), torch.randn(1, batch, 37) * 2 + 1
    states, context = states_of(layer, batch), packed(layer)
    output, *final = run(context, x, states)
    expected = expected_step(layer, x[0], states)
    # A projection rounds a state whose last bits are other ones: a code may be the next one.
    tolerance = 5e-3 if layer.proj_size else 2e-6
    assert_same(final, list(expected), tolerance=tolerance)
    assert torch.equal(output, final[0])
    assert context.fallback_reasons() == []


@pytest.mark.parametrize(("kind", "more"), CASES)
@pytest.mark.parametrize(("length", "batch"), [(1, 1), (5, 3), (150, 1), (40, 7), (3, 130)])
def test_a_sequence_is_its_steps(kind, more, length, batch):
    layer, x = LAYERS[kind](9, **more), torch.randn(length, batch, 9)
    states, context = states_of(layer, batch), packed(layer)
    output, *final = run(context, x, states)
    steps = []
    for step in x:
        y, *states = run(context, step[None], tuple(states))
        steps.append(y)
    assert torch.equal(output, torch.cat(steps))
    assert all(map(torch.equal, final, states))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("bias", [False, True])
def test_layers_and_directions_are_those_of_single_ones(kind, bias):
    layer, x = LAYERS[kind](9, 21, 2, bidirectional=True, bias=bias), torch.randn(6, 4, 9)
    states = states_of(layer, 4)
    output, *final = run(packed(layer), x, states)
    source, seen = x, []
    for i in range(2):
        results = []
        for j, suffix in enumerate(("", "_reverse")):
            single = LAYERS[kind](source.shape[2], 21, bias=bias)
            for name in dict(single.named_parameters()):
                getattr(single, name).copy_(getattr(layer, f"{name[:-1]}{i}{suffix}"))
            at = 2 * i + j
            y, *ends = run(packed(single), source.flip(0) if j else source, tuple(s[at : at + 1] for s in states))
            results.append(y.flip(0) if j else y)
            seen.append(ends)
        source = torch.cat(results, 2)
    assert torch.equal(output, source)
    for state, ends in zip(final, zip(*seen)):
        assert torch.equal(state, torch.cat(ends))


@pytest.mark.parametrize("kind", LAYERS)
def test_sequences_do_not_depend_on_each_other(kind):
    layer, x = LAYERS[kind](9, 24, batch_first=True), torch.randn(30, 5, 9)
    states, context = states_of(layer, 30), packed(layer)
    results = run(context, x, states)
    for first, last in ((0, 1), (7, 9), (12, 30)):
        part = run(context, x[first:last], tuple(s[:, first:last] for s in states))
        assert torch.equal(part[0], results[0][first:last])
        assert all(torch.equal(p, r[:, first:last]) for p, r in zip(part[1:], results[1:]))
    time_first = LAYERS[kind](9, 24)
    time_first.load_state_dict(layer.state_dict())
    assert torch.equal(run(packed(time_first), x.transpose(0, 1), states)[0].transpose(0, 1), results[0])


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("batch", [1, 3, 40])
def test_every_number_of_threads_gives_the_same_bits(kind, batch):
    layer, x = LAYERS[kind](200, 290, 2, bidirectional=batch == 3), torch.randn(9, batch, 200)
    states, context = states_of(layer, batch), packed(layer)
    expected = run(context, x, states)
    with own_thread_count():
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            for _ in range(3):
                assert all(map(torch.equal, run(context, x, states), expected))


def test_with_a_projection_too():
    layer, x = nn.LSTM(100, 300, proj_size=150), torch.randn(4, 2, 100)
    states, context = states_of(layer, 2), packed(layer)
    with own_thread_count():
        torch.set_num_threads(1)
        expected = run(context, x, states)
        torch.set_num_threads(4)
        assert all(map(torch.equal, run(context, x, states), expected))


@pytest.mark.parametrize("kind", LAYERS)
def test_inputs_that_lie_apart(kind):
    layer = LAYERS[kind](7, 24)
    states, context = states_of(layer, 5), packed(layer)
    for x in (
        torch.randn(5, 6, 7).transpose(0, 1),
        torch.randn(6, 5, 14)[:, :, ::2],
        torch.randn(7, 6, 5).permute(1, 2, 0),
    ):
        assert all(map(torch.equal, run(context, x, states), run(context, x.contiguous(), states)))


@pytest.mark.parametrize("kind", LAYERS)
def test_it_is_near_float32(kind):
    layer, x = LAYERS[kind](256, 256), torch.randn(30, 4, 256)
    states = states_of(layer, 4)
    exact = layer(x, states if kind == "lstm" else states[0])[0]
    error = (run(packed(layer), x, states)[0] - exact).norm() / exact.norm()
    assert 1e-4 < error < 0.02


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_makes_nan_of_its_sequence(kind, value):
    layer, x = LAYERS[kind](9, 24), torch.randn(6, 4, 9)
    x[2, 1, 3] = value
    states = states_of(layer, 4)
    y = run(packed(layer), x, states)[0]
    assert y[2:, 1].isnan().all()
    y[2:, 1] = 0
    assert y.isfinite().all()


@pytest.mark.parametrize("kind", LAYERS)
def test_calls_that_aten_computes_use_the_rounded_weights(kind):
    layer, x = LAYERS[kind](9, 24), torch.randn(6, 4, 9)
    states, context = states_of(layer, 4), packed(layer)
    aten_has_it = kind != "lstm" or has_lstm_of(torch.bfloat16)
    rounded = copy.deepcopy(layer)
    for name, weight in rounded.named_parameters():
        if "weight" in name:
            codes, scale = rounded_weight(weight)
            weight.copy_(codes * scale[:, None])
    given = states if kind == "lstm" else states[0]
    with torch.enable_grad():
        x.requires_grad_()
        y = run(context, x, states)[0]
        y.sum().backward()
        assert_same(y.detach(), rounded(x, given)[0].detach())
    assert x.grad is not None
    with pytest.raises(RuntimeError):
        run(context, x.detach().double(), states)
    with torch.autocast("cpu", dtype=torch.bfloat16), nullcontext() if aten_has_it else pytest.raises(RuntimeError):
        run(context, x.detach(), states)
    assert sorted(context.fallback_reasons()) == [
        "autocast is on",
        "the input is not a float32 CPU tensor",
        "the input requires a gradient",
    ]


def test_inputs_that_do_not_fit():
    layer = nn.GRU(9, 24)
    with pytest.raises(
        RuntimeError, match=r"ipex::dynamic_gru_run: expected input of \[time, batch, 9\], got \[6, 4, 8\]"
    ):
        run(packed(layer), torch.randn(6, 4, 8), states_of(layer, 4))


@pytest.mark.parametrize("kind", LAYERS)
def test_what_a_file_holds(kind):
    layer, x = LAYERS[kind](5, 19, 2, bidirectional=True, batch_first=True), torch.randn(2, 3, 5)
    states, context = states_of(layer, 2), packed(layer)
    (version, tensors, integers, post_ops), class_name = context.__getstate__()
    assert class_name == f"__torch__.torch.classes.ipex.{CLASSES[kind]}"
    assert (version, post_ops) == (1, [])
    assert integers == {"layers": [2], "bidirectional": [1], "batch_first": [1]}
    expected = dict(layer.named_parameters())
    assert tensors.keys() == expected.keys() | {n.replace("weight", "scales") for n in expected if "weight" in n}
    for name, parameter in expected.items():
        if "bias" in name:
            assert torch.equal(tensors[name], parameter)
        else:
            codes, scale = rounded_weight(parameter)
            assert torch.equal(tensors[name], codes.to(torch.int8))
            assert torch.equal(tensors[name.replace("weight", "scales")], scale[:, None])
    assert all(map(torch.equal, run(copy.deepcopy(context), x, states), run(context, x, states)))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("weight_ih_l0", lambda t: t.float(), "expected weight_ih_l0 to be a plain CPU tensor of int8"),
        ("weight_hh_l0", lambda t: t[:-1], "expected weight_hh_l0 to be a plain CPU tensor of int8"),
        ("scales_ih_l0", lambda t: t[:-1], "expected scales_ih_l0 to be a plain CPU tensor of float32"),
        ("scales_hh_l0", lambda t: t.double(), "expected scales_hh_l0 to be a plain CPU tensor of float32"),
        ("scales_hh_l0", lambda t: None, "expected scales_hh_l0 to be a plain CPU tensor of float32 .* got none"),
    ],
)
def test_damaged_states(kind, name, tensor, message):
    (version, tensors, *rest), class_name = packed(LAYERS[kind](5, 19)).__getstate__()
    tensors = {**tensors, name: tensor(tensors[name])}
    context = torch.ScriptObject.__new__(torch.ScriptObject)
    with pytest.raises(RuntimeError, match=message):
        context.__setstate__(((version, {k: t for k, t in tensors.items() if t is not None}, *rest), class_name))


def test_the_description():
    text = packed(nn.LSTM(5, 19, 2, batch_first=True, proj_size=7)).describe()
    assert text == (
        "ipex::dynamic_lstm_run(input=5, hidden=19, state=7, layers=2, directions=1, biases=1, batch_first=1, "
        "weight_format=int8, rows=uint8, quantised in each call)"
    )


def test_what_can_not_be_packed():
    layer = nn.GRU(5, 19)
    layer.weight_hh_l0[3, 4] = float("inf")
    with pytest.raises(RuntimeError, match="ipex::dynamic_gru_run: expected a non-empty, finite"):
        packed(layer)
    with pytest.raises(RuntimeError, match="expected at most 65536 inputs and units, got 65537"):
        packed(nn.GRU(65537, 1))


class Tagger(nn.Module):
    """A recurrent layer has no forward that can be scripted: the module around it has."""

    def __init__(self, kind: str, **more: Any) -> None:
        super().__init__()
        self.layer, self.head = LAYERS[kind](500, 400, batch_first=True, **more), nn.Linear(400, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0])


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("how", ["traced", "scripted", "frozen"])
def test_from_the_front_door(tmp_path, kind, how):
    model, x = Tagger(kind).eval(), torch.randn(3, 8, 500)
    given = {
        "traced": lambda: (model, x),
        "scripted": lambda: (torch.jit.script(model),),
        "frozen": lambda: (torch.jit.freeze(torch.jit.script(model)),),
    }[how]()
    quantized = ipex.quantization.dynamic(*given)
    found = kinds(quantized)
    assert (found[f"ipex::dynamic_{kind}_run"], found[f"ipex::{kind}_run"]) == (1, 0)
    layer = model.layer
    zeros = tuple(torch.zeros_like(s) for s in states_of(layer, 3))
    assert_same(quantized(x), model.head(run(packed(layer), x, zeros)[0]))
    assert fallback_reasons(quantized) == []
    quantized.save(tmp_path / "model.pt")
    for again in (ipex.load(tmp_path / "model.pt"), copy.deepcopy(quantized)):
        assert torch.equal(again(x), quantized(x))
        assert kinds(again)[f"ipex::dynamic_{kind}_run"] == 1
    weights = sum(p.numel() for n, p in layer.named_parameters() if "weight" in n)
    assert (tmp_path / "model.pt").stat().st_size < weights + 60_000


def said(model: nn.Module, x: Tensor | None = None, **more: Any) -> list[str]:
    quantized = ipex.quantization.dynamic(model, x, **more)
    return [d.reason for d in ipex.explain(quantized) if d.pass_name == "quantize_recurrent"]


def test_what_is_declined():
    assert said(nn.LSTM(20, 30).eval(), torch.randn(5, 2, 20)) in (
        ["its weights are too small to gain"],
        ["its weights are too small to gain without VNNI"],
    )
    wide = nn.GRU(65537, 1).eval()
    assert said(wide, torch.randn(1, 1, 65537)) == ["its sums of 65537 products don't fit 32 bits"]
    model, x = Tagger("gru").eval(), torch.randn(3, 8, 500)
    assert said(model, x, float_layers=["layer"]) == ["it is one of the layers to leave in float"]
    with pytest.raises(
        ValueError, match="expected paths of modules with linears, lstm or gru in float_layers, got 'x'"
    ):
        said(model, x, float_layers=["x"])
    model.layer.weight_hh_l0[3, 4] = float("nan")
    assert said(model, x) == ["a weight is not finite"]
    with pytest.raises(RuntimeError, match="expected a model that was not optimised before, got one that was"):
        said(ipex.jit_optimize(nn.GRU(500, 400).eval(), x))


CAPPED = """
import torch, ipex
from torch import nn
for width in (256, 512):
    model = ipex.quantization.dynamic(nn.LSTM(width, width).eval(), torch.randn(2, 1, width))
    print(*[d.reason for d in ipex.explain(model) if d.pass_name == "quantize_recurrent"])
"""


@pytest.mark.parametrize(
    ("cap", "expected"),
    [
        ("avx2", ["its weights are too small to gain without VNNI", "runs in int8"]),
        ("default", ["without AVX2, products of 8-bit numbers are slower than those of floats"] * 2),
    ],
)
def test_on_cpus_that_multiply_bytes_slowly(cap, expected):
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": cap, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", CAPPED]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == expected
