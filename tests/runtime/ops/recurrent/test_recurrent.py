from __future__ import annotations

import copy
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

import ipex
from support import assert_same, check_against_eager, fallback_reasons, kinds

# torch.nn's own checks of shapes, which a trace leaves out.
pytestmark = [
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported"),
]

LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU}
# Widths below, at and above those of a register.
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"hidden_size": 40},
    "one unit": {"hidden_size": 1},
    "no bias": {"hidden_size": 16, "bias": False},
    "batch first": {"hidden_size": 19, "batch_first": True},
    "two layers": {"hidden_size": 24, "num_layers": 2, "dropout": 0.5},
    "bidirectional": {"hidden_size": 17, "bidirectional": True},
    "everything": {
        "hidden_size": 21,
        "num_layers": 3,
        "bidirectional": True,
        "batch_first": True,
        "bias": False,
        "dropout": 0.1,
    },
}
CASES = [(kind, name) for kind in LAYERS for name in LAYOUTS]
PROJECTED = {"hidden_size": 20, "proj_size": 6}


@pytest.fixture(autouse=True)
def _restore_thread_count():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


class Alone(nn.Module):
    """A recurrent layer has no forward that can be scripted: the module around it has."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)


class WithState(nn.Module):
    """A recurrent layer that is given its initial state."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Any]:
        return self.layer(x, (h0, c0) if isinstance(self.layer, nn.LSTM) else h0)


def optimized_layer(layer: nn.RNNBase, x: Tensor) -> torch.jit.ScriptModule:
    with torch.no_grad():
        return ipex.jit_optimize(torch.jit.trace(layer.eval(), x))


def with_state(layer: nn.RNNBase, *inputs: Tensor) -> tuple[nn.Module, torch.jit.ScriptModule]:
    model = WithState(layer).eval()
    with torch.no_grad():
        return model, ipex.jit_optimize(torch.jit.trace(model, inputs))


def flat(results: Any) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else [t for part in results for t in flat(part)]


def result_or_error(module: nn.Module, *inputs: Tensor) -> Any:
    try:
        return module(*inputs)
    except RuntimeError as error:
        return str(error).splitlines()[-1]


def check_left_to_aten(layer: nn.RNNBase, x: Tensor, optimized: torch.jit.ScriptModule, reason: str) -> None:
    """The bits of stock TorchScript, or its error."""
    with torch.autocast("cpu", enabled=False):
        stock = torch.jit.freeze(torch.jit.trace(layer, torch.randn(4, 3, 5)))
    expected, ours = result_or_error(stock, x), result_or_error(optimized, x)
    if isinstance(expected, str):
        assert ours == expected
    else:
        assert_same(ours, expected, tolerance=0)
    assert reason in " ".join(fallback_reasons(optimized))


def check(layer: nn.RNNBase, folder: Any) -> None:
    x = torch.randn(6, 5, 7)
    also = (
        x[:, :1],
        x[:1],
        x[:1, :1],
        torch.randn(11, 19, 7),
        torch.randn(5, 6, 7).transpose(0, 1),
        torch.randn(6, 5, 14)[:, :, ::2],
        torch.randn(1, 1, 7).expand(4, 3, 7),
        torch.randn(7, 6, 5).permute(1, 2, 0),
    )
    optimized = check_against_eager(layer, x, also=also)
    assert kinds(optimized)["ipex::lstm_run"] + kinds(optimized)["ipex::gru_run"] == 1
    assert fallback_reasons(optimized) == []
    with torch.no_grad():
        optimized.save(folder / "model.pt")
        for again in (ipex.load(folder / "model.pt"), copy.deepcopy(optimized)):
            assert kinds(again) == kinds(optimized)
            assert_same(again(x), optimized(x), tolerance=0)


@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_matches_eager(tmp_path, kind, layout):
    check(LAYERS[kind](7, **LAYOUTS[layout]), tmp_path)


@pytest.mark.parametrize("more", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False}])
def test_projection_matches_eager(tmp_path, more):
    check(nn.LSTM(7, **PROJECTED, **more), tmp_path)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_unbatched_input(kind, batch_first):
    layer = LAYERS[kind](7, 12, bidirectional=True, batch_first=batch_first)
    assert fallback_reasons(check_against_eager(layer, torch.randn(5, 7))) == []


@pytest.mark.parametrize("kind", LAYERS)
def test_scripted(kind):
    model = Alone(LAYERS[kind](7, 12, batch_first=True)).eval()
    optimized = ipex.jit_optimize(torch.jit.script(model))
    with torch.no_grad():
        for x in (torch.randn(3, 5, 7), torch.randn(5, 7)) * 2:
            assert_same(optimized(x), model(x))
    assert fallback_reasons(optimized) == []


@pytest.mark.parametrize("kind", LAYERS)
def test_more_time_steps_than_are_projected_at_once(kind):
    layer = LAYERS[kind](3, 8, bidirectional=True)
    check_against_eager(layer, torch.randn(300, 1, 3), also=(torch.randn(40, 7, 3), torch.randn(3, 130, 3)))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("more", [{}, {"bidirectional": True, "num_layers": 2}])
def test_initial_states_are_read_and_kept(kind, more):
    layer = LAYERS[kind](7, 12, **more)
    layers = 4 if more else 1
    x, h0, c0 = torch.randn(4, 3, 7), torch.randn(layers, 3, 12), torch.randn(3, layers, 12).transpose(0, 1)
    optimized = check_against_eager(WithState(layer), x, h0, c0)
    assert fallback_reasons(optimized) == []


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30, -1e4, 1e-40])
def test_what_is_no_ordinary_number_goes_through(kind, value):
    layer = LAYERS[kind](4, 20)
    x = torch.randn(5, 3, 4)
    x[2, 1, 0] = value
    h0, c0 = torch.randn(1, 3, 20), torch.randn(1, 3, 20)
    (c0 if kind == "lstm" else h0)[0, 2, 3] = value
    model, optimized = with_state(layer, x, h0, c0)
    with torch.no_grad():
        assert_same(optimized(x, h0, c0), model(x, h0, c0))
        # Gates that are entirely open or closed: 0 * infinity is NaN.
        for ours, eager in zip(flat(optimized(1e5 * x, h0, c0)), flat(model(1e5 * x, h0, c0))):
            assert torch.equal(ours.isnan(), eager.isnan())
            assert torch.equal(ours.isinf(), eager.isinf())


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("scale", [1e-3, 1, 30])
def test_gates_are_as_accurate_as_float_allows(kind, scale):
    """Against float64, at sizes where a gate is nearly linear, curved, and closed."""
    layer, x = LAYERS[kind](8, 16).eval(), scale * torch.randn(1, 200, 8)
    with torch.no_grad():
        exact = copy.deepcopy(layer).double()(x.double())[0]
        ours, eager = optimized_layer(layer, x)(x)[0], layer(x)[0]
        assert (ours - exact).abs().max() <= 3 * (eager - exact).abs().max()


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("batch", [1, 3, 40])
def test_every_number_of_threads_gives_the_same_bits(kind, batch):
    layer, x = LAYERS[kind](32, 72, 2, bidirectional=batch == 3), torch.randn(9, batch, 32)
    optimized = optimized_layer(layer, x)
    with torch.no_grad():
        expected = optimized(x)
        for threads in (1, 2, 3, 4):
            torch.set_num_threads(threads)
            assert_same(optimized(x), expected, tolerance=0)


@pytest.mark.parametrize("kind", LAYERS)
def test_many_callers_at_once(tmp_path, kind):
    layer, x = LAYERS[kind](8, 24), torch.randn(6, 5, 8)
    optimized_layer(layer, x).save(tmp_path / "model.pt")
    loaded = ipex.load(tmp_path / "model.pt")  # packs at the first call
    with torch.no_grad():
        expected = layer(x)

    def call(_: int) -> None:
        with torch.no_grad():
            assert_same(loaded(x), expected)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(32)))


@pytest.mark.parametrize("kind", LAYERS)
def test_gradients(kind):
    layer, x = LAYERS[kind](5, 6, 2, bidirectional=True).eval(), torch.randn(4, 3, 5)
    optimized = optimized_layer(layer, x)
    ours, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
    optimized(ours)[0].sum().backward()
    layer(eager)[0].sum().backward()
    torch.testing.assert_close(ours.grad, eager.grad)
    assert fallback_reasons(optimized) == ["the input requires a gradient"]


def test_forward_mode_gradients():
    layer, x = nn.GRU(5, 6).eval(), torch.randn(4, 3, 5)  # aten has none of lstm
    optimized = optimized_layer(layer, x)
    with forward_ad.dual_level(), torch.no_grad():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        expected = forward_ad.unpack_dual(layer(dual)[0]).tangent
        torch.testing.assert_close(forward_ad.unpack_dual(optimized(dual)[0]).tangent, expected)


@pytest.mark.parametrize("kind", LAYERS)
def test_gradients_of_the_initial_state(kind):
    x, h0, c0 = torch.randn(4, 3, 5), torch.randn(1, 3, 6), torch.randn(1, 3, 6)
    model, optimized = with_state(LAYERS[kind](5, 6), x, h0, c0)
    ours, eager = h0.clone().requires_grad_(), h0.clone().requires_grad_()
    optimized(x, ours, c0)[0].sum().backward()
    model(x, eager, c0)[0].sum().backward()
    torch.testing.assert_close(ours.grad, eager.grad)
    assert fallback_reasons(optimized) == ["the initial state requires a gradient"]


@pytest.mark.parametrize("kind", LAYERS)
def test_autocast_is_left_to_aten(kind):
    layer, x = LAYERS[kind](5, 6).eval(), torch.randn(4, 3, 5)
    optimized = optimized_layer(layer, x)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        check_left_to_aten(layer, x, optimized, "autocast is on")


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_left_to_aten(kind, dtype):
    layer, x = LAYERS[kind](5, 6).eval(), torch.randn(4, 3, 5)
    optimized = optimized_layer(layer, x)
    with torch.no_grad():
        check_left_to_aten(layer, x.to(dtype), optimized, "the input is not a float32 CPU tensor")


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("shape", [(0, 3, 5), (4, 0, 5)])
def test_an_empty_input_is_left_to_aten(kind, shape):
    layer = LAYERS[kind](5, 6).eval()
    optimized = optimized_layer(layer, torch.randn(4, 3, 5))
    with torch.no_grad():
        check_left_to_aten(layer, torch.randn(shape), optimized, "the input is empty")


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("shape", [(4, 3, 6), (2, 4, 3, 5), (4, 5)])
def test_an_input_that_does_not_fit(kind, shape):
    x, h0, c0 = torch.randn(4, 3, 5), torch.randn(1, 3, 6), torch.randn(1, 3, 6)
    _, optimized = with_state(LAYERS[kind](5, 6), x, h0, c0)
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"expected input of \[time, batch, 5\], got \["):
        optimized(torch.randn(shape), h0, c0)


@pytest.mark.parametrize("kind", LAYERS)
def test_an_initial_state_that_does_not_fit(kind):
    x, h0, c0 = torch.randn(4, 3, 5), torch.randn(1, 3, 6), torch.randn(1, 3, 6)
    _, optimized = with_state(LAYERS[kind](5, 6), x, h0, c0)
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"expected a hidden state of \[?1[, ]+3[, ]+6"):
        optimized(x, torch.randn(1, 2, 6), c0)


@pytest.mark.parametrize("kind", LAYERS)
def test_tensors_whose_memory_is_not_their_value(kind):
    layer = LAYERS[kind](5, 6).eval()
    optimized = optimized_layer(layer, torch.randn(4, 3, 5))
    with torch.no_grad():
        x = torch._neg_view(torch.randn(4, 3, 5))
        assert_same(optimized(x), layer(x))


CLASSES = {"lstm": "LstmContext", "gru": "GruContext"}


@functools.cache
def state_of(kind: str) -> tuple[nn.RNNBase, tuple[Any, ...]]:
    layer = LAYERS[kind](5, 19, 2, bidirectional=True, batch_first=True)
    state, class_name = optimized_layer(layer, torch.randn(2, 3, 5)).packed_0.__getstate__()
    assert class_name == f"__torch__.torch.classes.ipex.{CLASSES[kind]}"
    return layer, state


def restore(kind: str, state: tuple[Any, ...]) -> torch.ScriptObject:
    context = torch.ScriptObject.__new__(torch.ScriptObject)
    context.__setstate__((state, f"__torch__.torch.classes.ipex.{CLASSES[kind]}"))
    return context


@pytest.mark.parametrize("kind", LAYERS)
def test_nothing_is_lost(kind):
    layer, (version, tensors, integers, post_ops) = state_of(kind)
    assert (version, post_ops) == (1, [])
    assert integers == {"layers": [2], "bidirectional": [1], "batch_first": [1]}
    expected = dict(layer.named_parameters())
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)
    again = restore(kind, (version, tensors, integers, post_ops)).__getstate__()[0]
    assert all(torch.equal(again[1][name], expected[name]) for name in expected)


def without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


BAD = [
    (lambda s: (9, *s[1:]), "expected a saved format of version 1 to 8, got 9"),
    (lambda s: (s[0], {}, *s[2:]), "expected a weight_ih_l0, got none"),
    (lambda s: (s[0], without(s[1], "weight_ih_l1_reverse"), *s[2:]), "expected a weight_ih_l1_reverse, got none"),
    (
        lambda s: (s[0], without(s[1], "weight_hh_l1"), *s[2:]),
        "expected weight_hh_l1 to be a plain CPU tensor of float32",
    ),
    (lambda s: (s[0], without(s[1], "bias_hh_l0"), *s[2:]), "expected bias_hh_l0 to be a plain CPU tensor of float32"),
    (
        lambda s: (s[0], {**s[1], "weight_ih_l1": torch.zeros(1, 38)}, *s[2:]),
        "expected weight_ih_l1 to be a plain CPU tensor of float32",
    ),
    (
        lambda s: (s[0], {**s[1], "weight_hh_l0": s[1]["weight_hh_l0"].double()}, *s[2:]),
        "expected weight_hh_l0 to be a plain CPU tensor of float32",
    ),
    (lambda s: (*s[:2], {**s[2], "layers": [0]}, s[3]), "expected 1 integers of at least 1 in 'layers'"),
    (lambda s: (*s[:2], {**s[2], "layers": [3]}, s[3]), "expected a weight_ih_l2, got none"),
    (lambda s: (*s[:2], without(s[2], "batch_first"), s[3]), "expected a field 'batch_first', got none"),
    (lambda s: (*s[:3], ["relu"]), "expected no post-ops"),
]


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(("damage", "message"), BAD)
def test_a_field_that_cant_be_right(kind, damage, message):
    with pytest.raises(RuntimeError, match=message):
        restore(kind, damage(state_of(kind)[1]))


def test_no_plain_weight_stays():
    optimized = optimized_layer(nn.LSTM(5, 6), torch.randn(4, 3, 5))
    graph = optimized.inlined_graph
    constants = [n for n in graph.findAllNodes("prim::Constant") if n.hasAttribute("value")]
    assert [n for n in constants if n.kindOf("value") in ("t", "ts", "ival")] == []
    assert "ipex::lstm_run(input=5, hidden=6, state=6, layers=1" in optimized.packed_0.describe()
