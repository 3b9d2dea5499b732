"""An op is its overload: `out=`, lists and metadata make another op of the same name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from anchored import named, trace
from support import assert_same, kinds


class Function(nn.Module):
    """A function of tensors, and a linear that it may use."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function, self.linear = function, nn.Linear(8, 8)
        self.register_buffer("weight", torch.randn(8, 8))

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def out_of(x: Tensor, *sizes: int) -> Tensor:
    return x.new_zeros(sizes or x.shape)


def written_out(call: Callable[..., Any], *sizes: int) -> Callable[[Function, Tensor], Any]:
    """What the call returns, and what it has written: seen through a view, as a trace takes `out` for the result."""

    def function(m: Function, x: Tensor) -> Any:
        out = out_of(x, *sizes)
        view = out.view(-1)
        result = call(m, x, out)
        return result, view + 1

    return function


OUT = {
    "matmul": written_out(lambda m, x, out: torch.matmul(x, x.transpose(-1, -2).contiguous() @ x, out=out)),
    "mm": written_out(lambda m, x, out: torch.mm(x, m.weight, out=out)),
    "addmm": written_out(lambda m, x, out: torch.addmm(m.weight[0], x, m.weight, out=out)),
    "linear": written_out(lambda m, x, out: torch._C._nn.linear(x, m.weight, m.weight[0], out=out)),
    "add after a linear": written_out(lambda m, x, out: torch.add(m.linear(x), x, alpha=2, out=out)),
    "mul after a linear": written_out(lambda m, x, out: torch.mul(m.linear(x), x, out=out)),
    "sigmoid after a linear": written_out(lambda m, x, out: torch.sigmoid(m.linear(x), out=out)),
    "clamp after a linear": written_out(lambda m, x, out: torch.clamp(m.linear(x), -0.1, 0.1, out=out)),
    "softmax": written_out(lambda m, x, out: torch.softmax(m.linear(x), -1, dtype=torch.float32, out=out)),
    "cat": written_out(lambda m, x, out: torch.cat([m.linear(x), x], out=out), 8, 8),
}


@named("function", OUT)
def test_out_is_written(function):
    model = Function(function).eval()
    x = torch.randn(4, 8)
    with torch.no_grad():
        optimized = ipex.jit_optimize(trace(model, x))
        for _ in range(3):
            assert_same(optimized(x), model(x))


@named(
    "function",
    {
        "bmm": written_out(lambda m, x, out: torch.bmm(x, x, out=out)),
        "baddbmm": written_out(lambda m, x, out: torch.baddbmm(x, x, x, out=out)),
    },
)
def test_out_of_a_batched_product_is_written(function):
    model, x = Function(function).eval(), torch.randn(2, 8, 8)
    with torch.no_grad():
        optimized = ipex.jit_optimize(trace(model, x))
        assert_same(optimized(x), model(x))


@pytest.mark.parametrize("reduce", [torch.max, torch.min])
def test_a_reduction_that_torch_traces_as_a_comparison_is_what_torch_makes_of_it(reduce):
    """A trace of max(y, out=o) is aten::max(y, o), which TorchScript itself takes for the larger of two tensors."""
    x = torch.randn(3, 8)
    traced = trace(Function(lambda m, x: reduce(m.linear(x), out=x.new_zeros(()))), x)
    with torch.no_grad():
        assert_same(ipex.jit_optimize(traced)(x), traced(x))


def test_a_reduction_is_no_comparison():
    model, x = Function(lambda m, x: torch.max(m.linear(x))).eval(), torch.randn(3, 8)
    assert_same(ipex.jit_optimize(trace(model, x))(x), model(x))


@named(
    "change",
    {
        "unsqueeze_": lambda y: y.unsqueeze_(0),
        "transpose_": lambda y: y.transpose_(0, 1),
        "squeeze_": lambda y: y.squeeze_(),
        "resize_": lambda y: y.resize_(1, 2),
        "out=": lambda y: torch.ones(2, out=y),
        "after a write": lambda y: y.add_(1).t_(),
    },
)
def test_a_change_of_shape_does_not_reach_the_caller(change):
    def function(m: Function, x: Tensor) -> Tensor:
        y = x.transpose(0, 1).transpose(0, 1)
        change(y)
        return y.clone()

    model, x = Function(function).eval(), torch.randn(2, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's about a resized out=
        optimized = ipex.jit_optimize(trace(model, x))
        ours, eager = x.clone(), x.clone()
        assert_same(optimized(ours), model(eager))
    assert ours.shape == eager.shape
    assert ours.stride() == eager.stride()


def test_a_transposed_pair_that_is_returned_is_a_tensor_of_its_own():
    model, x = Function(lambda m, x: x.transpose(0, 1).transpose(0, 1)).eval(), torch.randn(2, 3)
    optimized = ipex.jit_optimize(trace(model, x))
    for _ in range(3):
        y = optimized(x)
        assert y.data_ptr() == x.data_ptr()
        y.unsqueeze_(0)
        assert x.shape == (2, 3)


def test_a_list_written_in_place_is_a_write():
    def function(m: Function, x: Tensor) -> tuple[Tensor, Tensor]:
        a = m.linear(x) + m.linear(x * 2)
        first = a + 1
        torch._foreach_add_([a], 1)
        return first, a + 1

    model, x = Function(function).eval(), torch.randn(3, 8)
    optimized = ipex.jit_optimize(trace(model, x))
    with torch.no_grad():
        for _ in range(3):
            assert_same(optimized(x), model(x))


def test_padding_stays_where_a_list_is_written_in_place():
    def function(m: Function, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        padded = F.pad(y, (1, 1))
        torch._foreach_mul_([y], 3)
        return F.conv1d(padded, m.weight[:4, :3].reshape(4, 1, 3)), y

    model, x = Function(function).eval(), torch.randn(2, 1, 6)
    optimized = ipex.jit_optimize(trace(model, x))
    with torch.no_grad():
        for _ in range(3):
            assert_same(optimized(x), model(x))


@pytest.mark.parametrize("alpha", [1, 2])
def test_a_product_of_integers_stays_integer(alpha):
    def function(m: Function, x: Tensor) -> Tensor:
        return torch.baddbmm(x, x, x, alpha=alpha)

    model, x = Function(function).eval(), torch.randint(-9, 9, (2, 3, 3))
    assert_same(ipex.jit_optimize(trace(model, x))(x), model(x), tolerance=0)


def test_a_cast_is_not_used_again_after_a_write():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = x * 1.5
            a = self.first(x)
            x[:, 0] = 0
            return a, self.second(x)

    model, x = Model().eval(), torch.randn(1, 4, 6, 6)
    optimized = ipex.jit_optimize(trace(model, x), dtype=torch.bfloat16)
    with torch.no_grad():
        for ours, eager in zip(optimized(x), model(x)):
            torch.testing.assert_close(ours, eager, rtol=0, atol=0.03 * eager.abs().max().item())


def test_plain_forms_are_still_taken():
    model, x = Function(lambda m, x: torch.max(m.linear(x), m.linear(x * 2)) + 1).eval(), torch.randn(3, 8)
    optimized = ipex.jit_optimize(trace(model, x))
    assert kinds(optimized)["aten::max"] == 0
    with torch.no_grad():
        assert_same(optimized(x), model(x))
