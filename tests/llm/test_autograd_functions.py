"""A step holds no call of Python, and autograd functions are what they were once it is traced."""

from __future__ import annotations

import threading

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from ipex import llm  # noqa: E402
from ipex.llm._autograd_functions import as_their_ops  # noqa: E402
from llm.families import make  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
USUAL = torch.autograd.Function.__dict__["apply"]


class Double(torch.autograd.Function):
    """Its gradient is not that of its ops."""

    @staticmethod
    def forward(ctx, x, times=2):
        ctx.save_for_backward(x)
        ctx.mark_non_differentiable(x)
        return x * times if not any(ctx.needs_input_grad) else x * times + 0

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 7, None


class WithoutContext(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 7


def kinds(function) -> list[str]:
    with torch.no_grad():
        graph = torch.jit.trace(function, (torch.ones(2),)).graph
    return [node.kind() for node in graph.nodes() if node.kind() != "prim::Constant"]


@pytest.mark.parametrize("kind", [Double, WithoutContext])
def test_ops_take_its_place_inside(kind):
    assert kinds(kind.apply) == ["prim::PythonOp"]
    with as_their_ops():
        assert kinds(kind.apply) == ["aten::mul"]
        with as_their_ops():
            assert kinds(kind.apply) == ["aten::mul"]
        assert kinds(kind.apply) == ["aten::mul"]
    assert torch.autograd.Function.__dict__["apply"] is USUAL
    assert kinds(kind.apply) == ["prim::PythonOp"]


@pytest.mark.parametrize("kind", [Double, WithoutContext])
def test_gradients_stay_its_own(kind):
    x = torch.ones(2, requires_grad=True)
    with as_their_ops():
        kind.apply(x).sum().backward()
    assert torch.equal(x.grad, torch.full((2,), 7.0))


def test_other_threads_see_nothing():
    found = []
    with as_their_ops():
        thread = threading.Thread(target=lambda: found.extend(kinds(Double.apply)))
        thread.start()
        thread.join()
    assert found == ["prim::PythonOp"]


def test_an_error_leaves_it_as_it_was():
    with pytest.raises(KeyError), as_their_ops():
        raise KeyError
    assert torch.autograd.Function.__dict__["apply"] is USUAL


def test_the_step_of_bloom():
    model = llm.optimize(make("Bloom"))
    graph = model.__dict__["_compiled_call_impl"].captured.graph.inlined_graph
    assert list(graph.findAllNodes("prim::PythonOp")) == []
