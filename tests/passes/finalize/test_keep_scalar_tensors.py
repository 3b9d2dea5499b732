"""A tensor without dimensions decides the dtype beside another one, in eager; TorchScript takes it for a number."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_round_trip, assert_same, check_against_eager

OPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, b: x + b,
    "twice": lambda x, b: torch.add(x, b, alpha=2),
    "sub": lambda x, b: x - b,
    "mul": lambda x, b: x * b,
    "div": lambda x, b: x / b,
    "reversed": lambda x, b: b - x,
}


class Scaled(nn.Module):
    def __init__(self, op: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.op = OPS[op]
        self.scale = nn.Buffer(torch.tensor(3, dtype=dtype))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.op(x.sum().to(x.dtype), self.scale), self.op(x, self.scale)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.bfloat16])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.int32])
def test_dtypes_are_those_of_eager(tmp_path, op, dtype, given):
    x = torch.arange(1, 5).to(given)
    optimized = check_against_eager(Scaled(op, dtype), x, script=False)
    for _ in range(3):  # the executor specialises after the first calls
        results = optimized(x)
    assert [y.dtype for y in results] == [y.dtype for y in Scaled(op, dtype)(x)]
    assert_round_trip(optimized, tmp_path, x)


def test_a_model_that_is_optimised_twice_keeps_them():
    x = torch.rand(4)
    once = ipex.jit_optimize(torch.jit.trace(Scaled("mul", torch.float64).eval(), x))
    twice = ipex.jit_optimize(once)
    for _ in range(3):
        results = twice(x)
    assert_same(results, Scaled("mul", torch.float64)(x))


IN_ONE_PASS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, b: x + b,
    "mul": lambda x, b: x * b,
    "clamp": lambda x, b: x.clamp(b),
    "clamp from above": lambda x, b: x.clamp(None, b),
    "clamp_min": lambda x, b: torch.clamp_min(x, b),
    "clamp_max": lambda x, b: torch.clamp_max(x, b),
    "pow": lambda x, b: torch.pow(x, b),
}


@pytest.mark.parametrize("op", IN_ONE_PASS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_of_doubles_decides_the_dtype_among_elementwise_ops(op, dtype):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bound = nn.Buffer(torch.tensor(2, dtype=dtype))

        def forward(self, x: Tensor) -> Tensor:
            return IN_ONE_PASS[op](torch.sigmoid(x.sum()), self.bound)

    check_against_eager(Model(), torch.rand(4, 4), script=False)


def test_a_number_of_a_trace_stays_one(tmp_path):
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.max() * 100000.0

    x = torch.rand(8)
    optimized = check_against_eager(Model(), x)
    loaded = assert_round_trip(optimized, tmp_path, x)
    for module in (loaded, ipex.jit_optimize(loaded)):
        assert [module(x).dtype for _ in range(3)] == [torch.float32] * 3
