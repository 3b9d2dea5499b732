"""In mode BF32 recurrent layers read the weights of products that wait for memory in bfloat16, and nothing else."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex import FP32MathMode
from support import BF32_TOLERANCE, assert_same, fallback_reasons

# torch.nn's own checks of shapes, which a trace leaves out.
pytestmark = [
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported"),
]

FP32, BF32 = FP32MathMode.FP32, FP32MathMode.BF32
LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU}
UNITS = 213  # the last tile is not full, and the last pair has one number
kinds = pytest.mark.parametrize("kind", LAYERS)


@pytest.fixture(autouse=True)
def _no_gradients_in_float32():
    threads = torch.get_num_threads()
    with torch.no_grad(), ipex.fp32_math_mode(FP32):
        yield
    torch.set_num_threads(threads)


def optimized_for(layer: nn.Module, x: Tensor, mode: FP32MathMode | None = BF32) -> torch.jit.ScriptModule:
    return ipex.jit_optimize(torch.jit.trace(layer.eval(), x), fp32_math_mode=mode)


def rounded(layer: nn.RNNBase, *roles: str) -> nn.RNNBase:
    """The same layer, with weights of these roles that bfloat16 can hold."""
    result = copy.deepcopy(layer).eval()
    for name, weight in result.named_parameters():
        if name.startswith(roles):
            weight.data = weight.data.bfloat16().float()
    return result


def differ(actual: Any, expected: Any) -> bool:
    return not torch.equal(actual[0], expected[0])


class Case(NamedTuple):
    """A layer, the sizes of its input, and which of its weights are rounded in BF32."""

    layer: type[nn.RNNBase]
    options: dict[str, Any]
    sizes: tuple[int, ...]
    roles: tuple[str, ...]


HIDDEN = ("weight_hh",)
CASES = {
    "lstm, one sequence": Case(nn.LSTM, {"input_size": 7, "hidden_size": UNITS}, (5, 1, 7), HIDDEN),
    "lstm, two sequences": Case(nn.LSTM, {"input_size": 7, "hidden_size": UNITS}, (5, 2, 7), HIDDEN),
    "lstm, unbatched": Case(nn.LSTM, {"input_size": 7, "hidden_size": UNITS}, (5, 7), HIDDEN),
    "gru, one sequence": Case(nn.GRU, {"input_size": 7, "hidden_size": UNITS}, (5, 1, 7), HIDDEN),
    "gru, two sequences": Case(nn.GRU, {"input_size": 7, "hidden_size": UNITS, "bias": False}, (5, 2, 7), HIDDEN),
    "two layers, both directions": Case(
        nn.LSTM,
        {"input_size": 7, "hidden_size": UNITS, "num_layers": 2, "bidirectional": True, "batch_first": True},
        (1, 5, 7),
        HIDDEN,
    ),
    "one step": Case(nn.LSTM, {"input_size": 201, "hidden_size": UNITS}, (1, 1, 201), ("weight_hh", "weight_ih")),
    "one step of gru": Case(nn.GRU, {"input_size": 301, "hidden_size": UNITS}, (1, 1, 301), ("weight_hh", "weight_ih")),
    "projection": Case(nn.LSTM, {"input_size": 7, "hidden_size": 700, "proj_size": 201}, (3, 1, 7), ("weight_h",)),
    "more sequences, large": Case(nn.GRU, {"input_size": 7, "hidden_size": 850}, (2, 5, 7), HIDDEN),
    "three sequences": Case(nn.LSTM, {"input_size": 7, "hidden_size": UNITS}, (5, 3, 7), ()),
    "small": Case(nn.LSTM, {"input_size": 7, "hidden_size": 64}, (5, 1, 7), ()),
    "many sequences": Case(nn.GRU, {"input_size": 7, "hidden_size": 850}, (2, 33, 7), ()),
}


@pytest.mark.parametrize("case", CASES)
def test_these_weights_are_rounded_and_nothing_else(case):
    cell, options, sizes, roles = CASES[case]
    layer, x = cell(**options), torch.randn(sizes)
    optimized, in_float32 = optimized_for(layer, x), optimized_for(layer, x, FP32)
    assert_same(optimized(x), layer(x), BF32_TOLERANCE)
    if roles:
        assert_same(optimized(x), rounded(layer, *roles)(x))
        assert differ(optimized(x), in_float32(x))
    else:
        assert_same(optimized(x), in_float32(x), tolerance=0)
    assert fallback_reasons(optimized) == []


@kinds
def test_following_the_process_there_and_back(kind):
    layer, x = LAYERS[kind](7, UNITS), torch.randn(4, 1, 7)
    optimized = optimized_for(layer, x, mode=None)
    in_fp32, in_bf32 = optimized_for(layer, x, FP32)(x), optimized_for(layer, x, BF32)(x)
    for _ in range(2):
        with ipex.fp32_math_mode(BF32):
            assert_same(optimized(x), in_bf32, tolerance=0)
        assert_same(optimized(x), in_fp32, tolerance=0)
    assert "math_mode=as the process" in optimized.packed_0.describe()


@kinds
@pytest.mark.parametrize("mode", [FP32, BF32])
def test_a_mode_of_its_own(kind, mode, tmp_path):
    layer, x = LAYERS[kind](7, UNITS), torch.randn(4, 1, 7)
    optimized = optimized_for(layer, x, mode)
    expected = optimized(x)
    optimized.save(tmp_path / "model.pt")
    for again in (optimized, ipex.load(tmp_path / "model.pt"), copy.deepcopy(optimized)):
        for process in (FP32, BF32):
            with ipex.fp32_math_mode(process):
                assert_same(again(x), expected, tolerance=0)
        assert f"math_mode={mode.name})" in repr(again.packed_0)
        state, _ = again.packed_0.__getstate__()
        assert (state[0], state[2]["math_mode"]) == (2, [mode.value])
        assert all(torch.equal(state[1][name], weight) for name, weight in layer.named_parameters())


@kinds
def test_a_state_of_the_first_version_follows_the_process(kind):
    layer, x = LAYERS[kind](7, UNITS), torch.randn(4, 1, 7)
    state, class_name = optimized_for(layer, x, mode=None).packed_0.__getstate__()
    assert state[0] == 1
    assert "math_mode" not in state[2]
    context = torch.ScriptObject.__new__(torch.ScriptObject)
    context.__setstate__((state, class_name))
    assert "math_mode=as the process" in context.describe()


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ([1], r"expected math mode 0 \(FP32\) or 2 \(BF32\), got 1"),
        ([], "expected 1 integers of at least 0 in 'math_mode'"),
    ],
)
@kinds
def test_a_saved_mode_that_cant_be_right(kind, field, message):
    state, class_name = optimized_for(LAYERS[kind](7, 8), torch.randn(4, 1, 7)).packed_0.__getstate__()
    context = torch.ScriptObject.__new__(torch.ScriptObject)
    with pytest.raises(RuntimeError, match=message):
        context.__setstate__(((*state[:2], {**state[2], "math_mode": field}, state[3]), class_name))


@kinds
def test_every_number_of_threads_gives_the_same_bits(kind):
    layer = LAYERS[kind](32, 850, bidirectional=True)
    for batch in (1, 17):
        x = torch.randn(2, batch, 32)
        optimized = optimized_for(layer, x)
        expected = optimized(x)
        assert differ(expected, optimized_for(layer, x, FP32)(x))
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            assert_same(optimized(x), expected, tolerance=0)


@kinds
def test_nan_and_infinity(kind):
    layer, x = LAYERS[kind](7, UNITS), torch.randn(4, 2, 7)
    layer.weight_hh_l0.data[5, 8] = float("inf")
    layer.weight_hh_l0.data[UNITS - 1, UNITS - 1] = float("nan")
    x[2, 1, 3] = float("inf")
    actual = optimized_for(layer, x)(x)
    assert actual[0].isnan().any()
    assert_same(actual, rounded(layer, "weight_hh")(x))


@kinds
def test_many_first_calls_at_once(kind):
    layer, x = LAYERS[kind](7, UNITS), torch.randn(3, 1, 7)
    optimized, expected = optimized_for(layer, x), rounded(layer, "weight_hh")(x)

    def call(_: int) -> None:
        with torch.no_grad():
            assert_same(optimized(x), expected)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(16)))


MANY_ROWS = {
    "lstm": (lambda: nn.LSTM(96, 40), (40, 40, 96)),
    "gru": (lambda: nn.GRU(96, 40, batch_first=True, bias=False), (40, 40, 96)),
    "both directions": (lambda: nn.LSTM(96, 50, num_layers=2, bidirectional=True), (40, 40, 96)),
    "with a projection": (lambda: nn.LSTM(96, 50, proj_size=20, bidirectional=True), (9, 150, 96)),
    "unbatched": (lambda: nn.GRU(96, 150), (1100, 96)),
}


def largest_sum(layer: nn.LSTM | nn.GRU, x: Tensor) -> float:
    """Of what goes into the gates from outside: of these sums the factors are rounded, and tanh makes them smaller."""
    weights = [parameter for name, parameter in layer.named_parameters() if name.startswith("weight_ih_l0")]
    return max(float((x @ weight.t()).abs().max()) for weight in weights)


@pytest.mark.parametrize("case", MANY_ROWS)
def test_onednn_projects_many_rows_where_there_is_amx(case, tmp_path):
    make, sizes = MANY_ROWS[case]
    layer = make()
    x = torch.randn(sizes)
    expected = layer(x)
    optimized = optimized_for(layer, x, mode=None)
    assert_same(optimized(x), expected)
    assert optimized.packed_0.primitive_math_modes() == []
    optimized.save(tmp_path / "model.pt")
    for again in (optimized, ipex.load(tmp_path / "model.pt")):
        with ipex.fp32_math_mode(BF32):
            assert_same(again(x), expected, BF32_TOLERANCE * largest_sum(layer, x))
        assert set(again.packed_0.primitive_math_modes()) == ({"BF32"} if ipex.isa.has_amx() else set())
        assert again.packed_0.cached_primitives() <= 8
    assert fallback_reasons(optimized) == []


def test_what_is_left_to_aten_is_not_rounded():
    layer, x = nn.LSTM(7, UNITS), torch.randn(4, 1, 7)
    optimized = optimized_for(layer, x)
    optimized(x)
    with torch.enable_grad():
        assert_same(optimized(x.requires_grad_())[0].detach(), layer(x)[0].detach())
    assert fallback_reasons(optimized) == ["the input requires a gradient"]
