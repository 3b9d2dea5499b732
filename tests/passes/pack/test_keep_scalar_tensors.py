"""A tensor without dimensions decides the dtype beside another one, in eager; TorchScript takes it for a number."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_round_trip, assert_same, check_against_eager, kinds

OPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, b: x + b,
    "twice": lambda x, b: torch.add(x, b, alpha=2),
    "sub": lambda x, b: x - b,
    "mul": lambda x, b: x * b,
    "div": lambda x, b: x / b,
    "reversed": lambda x, b: b - x,
    "clamp": lambda x, b: x.clamp(b, b + 1),
    "clamp from above": lambda x, b: x.clamp(None, b),
    "clamp_min": lambda x, b: torch.clamp_min(x, b),
    "clamp_max": lambda x, b: torch.clamp_max(x, b),
    "pow": lambda x, b: torch.pow(x, b),
}


class Scaled(nn.Module):
    def __init__(self, op: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.op = OPS[op]
        self.scale = nn.Buffer(torch.tensor(3, dtype=dtype))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.op(x.sum().to(x.dtype), self.scale), self.op(x, self.scale)


class Activated(Scaled):
    """Elementwise ops of floats may be one pass, of bounds and exponents too."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.exp(self.op(torch.relu(x.sum()), self.scale)), torch.exp(self.op(torch.relu(x), self.scale))


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


DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64]
DTYPES += [torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool]


class Joined(nn.Module):
    """Each op of a tensor that has dimensions, of a dtype that nobody knows, and of each buffer that eager takes."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.pairs = []
        for dtype in DTYPES:
            scale, name = torch.tensor(3).to(dtype), str(dtype).replace("torch.", "of_")
            self.register_buffer(name, scale)
            self.pairs += [(op, name) for op in OPS.values() if takes(op, x, scale)]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        joined = torch.cat([x, x])
        results = [op(joined, getattr(self, name)) for op, name in self.pairs]
        return *results, *(torch.exp(result) for result in results)


def takes(op: Callable[[Tensor, Tensor], Tensor], x: Tensor, scale: Tensor) -> bool:
    try:
        torch.exp(op(x, scale))
    except (RuntimeError, UserWarning):  # which tells of complex numbers of float16
        return False
    return True


@pytest.mark.parametrize("given", DTYPES)
def test_a_tensor_of_a_higher_category_decides(given):
    x = torch.arange(1, 5).to(given)
    model = Joined(x)
    assert len(model.pairs) > 30
    check_against_eager(model, x)


def test_the_default_dtype_is_a_numbers_not_a_tensors():
    x = torch.arange(1, 5, dtype=torch.int32)
    model = Joined(x)
    optimized = ipex.jit_optimize(torch.jit.trace(model.eval(), x, check_trace=False))
    torch.set_default_dtype(torch.float64)
    try:
        assert_same(optimized(x), model(x))
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.float16])
def test_dtypes_of_elementwise_ops_are_those_of_eager(op, dtype, given):
    check_against_eager(Activated(op, dtype), torch.rand(4, 4).to(given), script=False)


def test_beside_a_layers_result_it_is_a_number():
    class Gain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.gain = nn.Linear(4, 4), nn.Parameter(torch.tensor(0.5))

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.layer(x)) * self.gain

    optimized = check_against_eager(Gain(), torch.randn(2, 4))
    assert kinds(optimized)["ipex::linear_run"] == 1
    assert kinds(optimized)["aten::mul"] == kinds(optimized)["ipex::elementwise"] == 0


def test_what_comes_first_beside_a_layers_result_stays_a_constant():
    class Share(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.gain = nn.Linear(4, 4), nn.Parameter(torch.tensor(0.5))

        def forward(self, x: Tensor) -> Tensor:
            return self.gain / self.layer(x)

    module = torch.jit.trace(Share().eval(), torch.randn(2, 4))
    optimized = ipex.jit_optimize(module, disable=["fuse_arithmetic", "fuse_number", "fuse_elementwise"])
    assert kinds(optimized)["aten::div"] == 1
    assert not hasattr(optimized, "scalar_0")


def test_a_number_of_a_trace_stays_one(tmp_path):
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.max() * 100000.0

    x = torch.rand(8)
    optimized = check_against_eager(Model(), x)
    loaded = assert_round_trip(optimized, tmp_path, x)
    for module in (loaded, ipex.jit_optimize(loaded)):
        assert [module(x).dtype for _ in range(3)] == [torch.float32] * 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_tensor_that_a_script_makes_stays_one(dtype):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dtype = dtype

        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor(2, dtype=self.dtype) * x

    check_against_eager(Model(), torch.randint(9, (2, 3)), script=True, also=(torch.randn(2, 3),))


@pytest.mark.filterwarnings("ignore:torch.tensor results are registered as constants")
@pytest.mark.parametrize("given", [torch.float32, torch.int32])
def test_a_tensor_of_a_trace_that_comes_first_is_one(given):
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor(2, dtype=torch.float64) - x + x

    check_against_eager(Model(), torch.arange(1, 5).to(given), script=False)


class AddsTensor(nn.Module):
    """A tensor that is written down in forward, beside a number."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum() + torch.tensor(2, dtype=torch.float64), x.sum() + 3.0


@pytest.mark.filterwarnings("ignore:torch.tensor results are registered as constants")
def test_a_tensor_that_a_trace_makes_stays_one(tmp_path):
    x = torch.randn(2, 3)
    optimized = check_against_eager(AddsTensor(), x, script=False)
    for _ in range(3):
        assert [y.dtype for y in optimized(x)] == [torch.float64, torch.float32]
    assert_round_trip(optimized, tmp_path, x)
