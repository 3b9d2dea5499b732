"""graph_mode: traced where that gives what eager gives, else compiled, else eager; and the report says which."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex import _compile_backend
from ipex._tracing import difference
from optimize.models import Attention, Classifier, Mlp, trained
from support import assert_same

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


@pytest.fixture(autouse=True)
def _nothing_compiled():
    yield
    torch.compiler.reset()


def graph(model: nn.Module, sample, **options):
    optimized = ipex.optimize(model, graph_mode=True, sample_input=sample, **options)
    (decision,) = [d for d in ipex.explain(optimized) if d.pass_name == "graph_mode"]
    return optimized, decision


@pytest.mark.parametrize(("make", "sizes"), [(Classifier, (2, 3, 16, 16)), (Mlp, (3, 16)), (Attention, (2, 5, 16))])
def test_a_trace(make, sizes):
    model, x = trained(make()), torch.randn(*sizes)
    optimized, decision = graph(model, x)
    assert "traced" in decision.reason
    assert isinstance(optimized, make)
    assert optimized._compiled_call_impl is not None
    with torch.no_grad():
        for given in (x, torch.cat([x, x])):
            assert_same(optimized(given).contiguous(), model(given), 2e-5)
    assert_same(optimized(x).contiguous(), model(x), 2e-5)  # with gradients: the model itself
    assert optimized(x).requires_grad


class Doubles(nn.Module):
    """Its trace holds for the sign of the sample alone."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * 2 if x.sum() > 0 else self.linear(x)


class Random(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


def test_what_can_not_be_traced_is_compiled():
    model, x = Doubles().eval(), torch.ones(2, 4)
    optimized, decision = graph(model, x)
    assert decision.applied
    assert (
        "run by torch.compile: tracing fails: ValueError: the trace would hold for these inputs alone"
        in decision.reason
    )
    with torch.no_grad():
        for sign in (1, -1):
            assert_same(optimized(x * sign), model(x * sign))


def test_what_neither_can_do_stays_eager():
    model, x = Random().eval(), torch.ones(2, 4)
    with pytest.warns(UserWarning, match="graph_mode is left out. The model stays eager") as caught:
        optimized, decision = graph(model, x)
    assert len(caught) == 1
    assert not decision.applied
    assert optimized._compiled_call_impl is None
    assert optimized(x).shape == x.shape


def test_without_a_sample_it_is_compiled():
    model, x = trained(Mlp()), torch.randn(3, 16)
    optimized = ipex.optimize(model, graph_mode=True)
    with torch.no_grad():
        assert_same(optimized(x), model(x), 2e-5)


def test_other_calls_are_the_models_own():
    model, x = trained(Mlp()), torch.randn(3, 16)
    optimized, _ = graph(model, x)
    seen = []
    with torch.no_grad():
        assert_same(optimized(x=x), model(x), 2e-5)
        handle = optimized.register_forward_hook(lambda *_: seen.append(1))
        optimized(x)
        handle.remove()
        assert seen == [1]
        assert_same(copy.deepcopy(optimized)(x), model(x), 2e-5)
        assert optimized.double()(x.double()).dtype == torch.float64


def test_parameters_that_change_end_the_graph():
    model, other, x = trained(Mlp()), trained(Mlp()), torch.randn(3, 16)
    optimized, _ = graph(model, x)
    optimized.load_state_dict(other.state_dict())
    with torch.no_grad():
        with pytest.warns(UserWarning, match="expected the parameters that the graph was made with"):
            assert_same(optimized(x), other(x), 2e-5)
        assert_same(optimized(x), other(x), 2e-5)


def test_how_near_is_near_follows_the_math_mode():
    expected, rounded = torch.ones(4), torch.full((4,), 1.005)
    assert difference(expected, rounded) == "its trace gives other numbers"
    with ipex.fp32_math_mode(ipex.FP32MathMode.BF32):
        assert difference(expected, rounded) is None
        assert difference(expected.double(), rounded.double()) == "its trace gives other numbers"


class TwoWays(nn.Module):
    """What a trace can't hold, and torch.compile can."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu() if x.shape[0] > 1 else self.linear(x)


def test_each_model_of_a_class_is_compiled(caplog, monkeypatch):
    made = []
    monkeypatch.setattr(_compile_backend, "jit_optimize", lambda traced: made.append(1) or ipex.jit_optimize(traced))
    models, x = [TwoWays().eval() for _ in range(3)], torch.ones(2, 4)
    with caplog.at_level(logging.WARNING):
        optimized = [ipex.optimize(model, graph_mode=True) for model in models]
        with torch.no_grad():
            for _ in range(2):
                for one, model in zip(optimized, models):
                    assert_same(one(x), model(x))
    assert len(made) == 3
    assert [r.getMessage() for r in caplog.records if r.name.startswith("ipex")] == []


def test_calls_that_are_eager_say_why_once(caplog):
    model, x = trained(Mlp()), torch.randn(3, 16)
    optimized, _ = graph(model, x)
    with caplog.at_level(logging.WARNING, "ipex.graph_mode"):
        for _ in range(2):
            optimized(x)
            with torch.no_grad():
                optimized(x)
                optimized(x=x)
                handle = optimized.register_forward_hook(lambda *_: None)
                optimized(x)
                handle.remove()
    reasons = [r.getMessage().partition("eager: ")[2] for r in caplog.records]
    assert reasons == [
        "gradients may be wanted. Call it under torch.no_grad()",
        "its arguments are of another number, rank or dtype than those of sample_input, or named",
        "it has hooks, which a graph would not call",
    ]
