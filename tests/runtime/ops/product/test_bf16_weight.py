"""In mode BF32 a large linear with few rows reads its weight in bfloat16: the input and the sums stay float32."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex import FP32MathMode
from support import assert_same, fallback_reasons

INPUTS, OUTPUTS = 1100, 1001  # the last tile is not full


def linear(bias: bool = True) -> nn.Linear:
    return nn.Linear(INPUTS, OUTPUTS, bias).eval()


def smaller_linear() -> nn.Linear:
    return nn.Linear(700, 661).eval()


def rounded(model: nn.Linear) -> nn.Linear:
    """The same linear with a weight that bfloat16 can hold."""
    result = linear(model.bias is not None)
    result.load_state_dict(model.state_dict())
    result.weight.data = model.weight.data.bfloat16().float()
    return result


def optimized_for(model: nn.Module, x: Tensor, mode: FP32MathMode | None = FP32MathMode.BF32) -> torch.jit.ScriptModule:
    return ipex.jit_optimize(torch.jit.trace(model, x), fp32_math_mode=mode)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (4,), (1, 3), ()])
@pytest.mark.parametrize("bias", [False, True])
def test_the_weight_is_rounded_and_nothing_else(sizes, bias):
    model, x = linear(bias), torch.randn(*sizes, INPUTS)
    optimized = optimized_for(model, x)
    assert_same(optimized(x), rounded(model)(x))
    assert fallback_reasons(optimized) == []
    assert optimized.packed_0.cached_primitives() == 0  # oneDNN has made none


@pytest.mark.parametrize(
    ("rows", "inputs", "mode"),
    [
        (5, INPUTS, FP32MathMode.BF32),
        (4, 700, FP32MathMode.BF32),
        (1, 64, FP32MathMode.BF32),
        (1, INPUTS, FP32MathMode.FP32),
    ],
)
def test_the_others_are_in_float32(rows, inputs, mode):
    model, x = nn.Linear(inputs, OUTPUTS).eval(), torch.randn(rows, inputs)
    assert_same(optimized_for(model, x, mode)(x), model(x))


def test_post_ops_follow():
    class Residual(nn.Module):
        def __init__(self, inner: nn.Linear) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.relu(self.inner(x) + y)

    model, x, y = smaller_linear(), torch.randn(2, 700), torch.randn(2, 661)
    residual = Residual(model).eval()
    optimized = ipex.jit_optimize(torch.jit.trace(residual, (x, y)), fp32_math_mode=FP32MathMode.BF32)
    # Two post-ops need a larger weight than this one to make up for them.
    assert_same(optimized(x, y), residual(x, y))

    model, x = linear(), torch.randn(2, INPUTS)
    activated = nn.Sequential(model, nn.ReLU()).eval()
    optimized = optimized_for(activated, x)
    assert_same(optimized(x), torch.relu(rounded(model)(x)))
    assert optimized.packed_0.cached_primitives() == 0
    assert fallback_reasons(optimized) == ["post-ops: the kernel for bfloat16 weights applies none"]


def test_following_the_process_there_and_back():
    model, x = linear(), torch.randn(1, INPUTS)
    optimized = optimized_for(model, x, mode=None)
    for _ in range(2):
        with ipex.fp32_math_mode(FP32MathMode.BF32):
            assert_same(optimized(x), rounded(model)(x))
        assert_same(optimized(x), model(x))


def test_the_plain_weight_is_kept(tmp_path):
    model, x = linear(), torch.randn(1, INPUTS)
    optimized = optimized_for(model, x)
    expected = optimized(x)
    optimized.save(tmp_path / "model.pt")
    loaded = ipex.load(tmp_path / "model.pt")
    assert torch.equal(loaded(x), expected)
    assert torch.equal(loaded.packed_0.__getstate__()[0][1]["weight"], model.weight)


def test_nan_and_infinity():
    model, x = linear(), torch.randn(3, INPUTS)
    model.weight.data[5, 7], model.weight.data[6, 8], model.weight.data[OUTPUTS - 1, 9] = float("nan"), float("inf"), 0
    x[1, 9] = float("inf")
    x[2, 0] = float("nan")
    actual, expected = optimized_for(model, x)(x), model(x)
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual.isinf(), expected.isinf())
    assert_same(actual, rounded(model)(x))


def test_many_first_calls_at_once():
    model, x = linear(), torch.randn(1, INPUTS)
    optimized, expected = optimized_for(model, x), rounded(model)(x)

    def call(_: int) -> None:
        with torch.no_grad():
            assert_same(optimized(x), expected)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(16)))


def test_gradients_are_eagers():
    with torch.enable_grad():
        model, x = linear(), torch.randn(1, INPUTS, requires_grad=True)
        optimized_for(model, x)(x).sum().backward()
    torch.testing.assert_close(x.grad, model.weight.sum(0, keepdim=True))
