"""In mode BF32 some products read their weight in bfloat16. The sums stay float32.

With few rows, a large linear does, on every CPU, and its input stays float32. With more, linears and convolutions of
single pixels do where AVX512_BF16 multiplies pairs of bfloat16 numbers, and there the input is rounded too.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import ipex
from ipex import FP32MathMode, isa
from support import BF32_TOLERANCE, FP32_TOLERANCE, assert_same, fallback_reasons, own_thread_count, primitive_count

INPUTS, OUTPUTS = 1100, 1001  # the last panel is not full
MOST_ROWS = 6 if isa.has_avx512() else 4  # of few
HAS_DOT_PRODUCTS = isa.has_fast_avx512_bf16() or isa.has_amx()
needs_dot_products = pytest.mark.skipif(not HAS_DOT_PRODUCTS, reason="no fast bfloat16 products")


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


@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (4,), (MOST_ROWS,), (1, 3), ()])
@pytest.mark.parametrize("bias", [False, True])
def test_the_weight_is_rounded_and_nothing_else(sizes, bias):
    model, x = linear(bias), torch.randn(*sizes, INPUTS)
    optimized = optimized_for(model, x)
    assert_same(optimized(x), rounded(model)(x))
    assert fallback_reasons(optimized) == []
    assert optimized.packed_0.cached_primitives() == 0  # oneDNN has made none


@pytest.mark.parametrize("rows", range(1, MOST_ROWS + 1))
@pytest.mark.parametrize(("inputs", "outputs"), [(1037, 1021), (601, 4000), (40000, 30), (1500, 900)])
def test_odd_depths_and_panels_of_every_width(inputs, outputs, rows):
    model, x = nn.Linear(inputs, outputs).eval(), torch.rand(rows, inputs)
    expected = F.linear(x, model.weight.bfloat16().float(), model.bias)
    assert_same(optimized_for(model, x)(x), expected)


@pytest.mark.parametrize(
    ("rows", "inputs", "mode"),
    [
        (4, 100, FP32MathMode.BF32),
        (1, 64, FP32MathMode.BF32),
        (1, INPUTS, FP32MathMode.FP32),
        (30, INPUTS, FP32MathMode.FP32),
    ],
)
def test_the_others_are_in_float32(rows, inputs, mode):
    model, x = nn.Linear(inputs, OUTPUTS).eval(), torch.randn(rows, inputs)
    optimized = optimized_for(model, x, mode)
    assert_same(optimized(x), model(x))
    assert "bfloat16_copy" not in optimized.packed_0.describe()


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(self.inner(x) + y)


def test_post_ops_are_fused():
    """Also where the weight is too small to make up for a call to aten."""
    model, x, y = smaller_linear(), torch.randn(2, 700), torch.randn(2, 661)
    residual = Residual(model).eval()
    optimized = ipex.jit_optimize(torch.jit.trace(residual, (x, y)), fp32_math_mode=FP32MathMode.BF32)
    expected = torch.relu(F.linear(x, model.weight.bfloat16().float(), model.bias) + y)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        actual = optimized(x, y)
    assert_same(actual, expected)
    assert {event.name for event in profiled.events() if event.name.startswith("aten::")} <= {"aten::empty"}
    assert fallback_reasons(optimized) == []
    assert primitive_count(optimized) == 0


def test_post_ops_that_no_kernel_has_follow():
    for model in (nn.Linear(512, 512), nn.Linear(1024, 1024)):
        activated, x = nn.Sequential(model, nn.Softplus(threshold=100)).eval(), torch.randn(2, model.in_features)
        optimized = optimized_for(activated, x)
        expected = F.softplus(F.linear(x, model.weight.bfloat16().float(), model.bias), threshold=100)
        assert_same(optimized(x), expected)
        assert "bfloat16_copy" in optimized.packed_0.describe()


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


def test_the_description_says_what_the_copy_takes():
    model, x = linear(), torch.randn(1, INPUTS)
    optimized = optimized_for(model, x)
    assert "bfloat16_copy" not in optimized.packed_0.describe()
    optimized(x)
    (size,) = map(int, re.findall(r"bfloat16_copy_bytes=(\d+)", optimized.packed_0.describe()))
    assert 2 * INPUTS * OUTPUTS <= size < 2.2 * INPUTS * OUTPUTS


def rounded_product(x: Tensor, model: nn.Linear) -> Tensor:
    """The product of rounded factors, with sums in float32."""
    return F.linear(x.bfloat16().float(), model.weight.bfloat16().float(), model.bias)


@needs_dot_products
@pytest.mark.parametrize("rows", [7, 8, 13, 50, 129])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 300), (65, 511), (767, 70), (1601, 33), (3073, 128), (15, 2000)])
def test_many_rows_are_rounded_too(rows, inputs, outputs):
    model, x = nn.Linear(inputs, outputs).eval(), torch.randn(rows, inputs)
    optimized = optimized_for(model, x)
    actual = optimized(x)
    assert_same(actual, rounded_product(x, model))
    assert_same(actual, model(x), BF32_TOLERANCE)
    assert fallback_reasons(optimized) == []
    assert primitive_count(optimized) == 0


@needs_dot_products
def test_many_rows_too_small_for_it():
    model, x = nn.Linear(32, 40).eval(), torch.randn(50, 32)
    assert_same(optimized_for(model, x)(x), model(x), FP32_TOLERANCE)


@needs_dot_products
def test_post_ops_of_many_rows():
    model, x, y = smaller_linear(), torch.randn(40, 700), torch.randn(40, 661)
    residual = Residual(model).eval()
    optimized = ipex.jit_optimize(torch.jit.trace(residual, (x, y)), fp32_math_mode=FP32MathMode.BF32)
    assert_same(optimized(x, y), torch.relu(rounded_product(x, model) + y))
    activated = nn.Sequential(model, nn.GELU()).eval()
    optimized = optimized_for(activated, x)
    assert_same(optimized(x), F.gelu(rounded_product(x, model)))
    assert fallback_reasons(optimized) == []


@needs_dot_products
@pytest.mark.parametrize("rows", [16, 60])
def test_special_values_of_many_rows(rows):
    """NaN and infinity stay. What rounds beyond float32's range becomes infinite, subnormal numbers count as zero."""
    model, x = nn.Linear(100, 90).eval(), torch.randn(rows, 100)
    model.weight.data[5, 7], model.weight.data[6, 8], model.weight.data[80, 9] = float("nan"), float("inf"), 0
    x[1, 9], x[2, 99], x[3, 8] = float("inf"), float("nan"), 0
    optimized = optimized_for(model, x)
    actual, expected = optimized(x), model(x)
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual.isinf(), expected.isinf())

    model = nn.Linear(100, 90, bias=False).eval()
    x, largest = torch.zeros(rows, 100), torch.finfo(torch.float32).max
    model.weight.data.fill_(0.25)
    x[0, 0], x[1, 0], x[2, 0], x[3, 0] = largest, -largest, 1e-39, 1e-37
    y = optimized_for(model, x)(x)
    assert (y[0] == float("inf")).all()
    assert (y[1] == -float("inf")).all()
    assert (y[2] == 0).all()
    torch.testing.assert_close(y[3], torch.full_like(y[3], 0.25e-37), rtol=2**-8, atol=0)


@needs_dot_products
def test_neither_calls_nor_threads_change_a_bit():
    model, x = nn.Linear(600, 500).eval(), torch.randn(300, 600)
    optimized = optimized_for(model, x)
    expected = optimized(x)
    with own_thread_count():
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            assert all(torch.equal(optimized(x), expected) for _ in range(3))


@needs_dot_products
@pytest.mark.parametrize("side", [6, 30, 40])
def test_single_pixels(side):
    """With more than 1024 of them too."""
    model = nn.Sequential(nn.Conv2d(70, 90, 1), nn.ReLU()).eval()
    x = torch.randn(1, 70, side, side).to(memory_format=torch.channels_last)
    optimized = optimized_for(model, x)
    weight = model[0].weight.bfloat16().float()
    assert_same(optimized(x), F.relu(F.conv2d(x.bfloat16().float(), weight, model[0].bias)))
    assert primitive_count(optimized) == 0
    assert "bfloat16_copy" in optimized.packed_0.describe()


@pytest.mark.parametrize("mode", [FP32MathMode.FP32, FP32MathMode.BF32])
@pytest.mark.parametrize("rows", [3, 40])
def test_rows_apart_from_each_other(rows, mode):
    """Slices of larger tensors are read where they are."""
    wide, sequences = torch.randn(rows, 2 * INPUTS + 3), torch.randn(rows, 5, INPUTS)
    model = linear()
    optimized = optimized_for(model, torch.randn(rows, INPUTS), mode)
    for x in (wide[:, 3 : 3 + INPUTS], sequences[:, 2], torch.randn(1, INPUTS).expand(rows, INPUTS)):
        expected = optimized(x.contiguous())
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            assert torch.equal(optimized(x), expected)
        assert not [event.name for event in profiled.events() if event.name in ("aten::contiguous", "aten::copy_")]
