"""Float32 linears and convolutions of single pixels run on kernels of our own, which read what oneDNN packed.

That no primitive was made is how a test sees which kernel ran.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from ipex import FP32MathMode
from low_precision import assert_no_worse
from support import (
    BF32_TOLERANCE,
    FP32_TOLERANCE,
    assert_round_trip,
    assert_same,
    check_against_eager,
    fallback_reasons,
    optimized_for,
    own_thread_count,
    primitive_count,
    skip_if_aten_has_no_limit,
)

FEW, MANY = 16, 17  # the most rows of one kernel, the least of the other


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("rows", [*range(1, MANY + 8), 31, 32, 47, 49, 100, 300])
def test_rows(rows):
    x = torch.randn(rows, 70)
    optimized = check_against_eager(nn.Sequential(nn.Linear(70, 100), nn.ReLU()), x)
    assert primitive_count(optimized) == 0
    assert fallback_reasons(optimized) == []


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("width_out", [1, 2, 7, 8, 17, 24, 25, 63, 65, 97, 200, 1000])
@pytest.mark.parametrize("width_in", [1, 3, 8, 9, 64, 65, 300])
def test_widths(width_in, width_out, bias):
    """Of numbers above zero: a lone result that is nearly zero could not be told from one that is wrong."""
    x, *also = (torch.rand(rows, width_in) for rows in (1, 2, 3, 4, 5, 7, 11, FEW, MANY, 23, 50))
    model = nn.Linear(width_in, width_out, bias)
    model.weight.abs_()
    optimized = check_against_eager(model, x, also=tuple(also))
    assert primitive_count(optimized) == 0


@pytest.mark.parametrize("width_in", [767, 768, 769, 1537])
@pytest.mark.parametrize("width_out", [1, 40, 50, 200])
def test_depths(width_in, width_out):
    """With many rows, long sums are computed in pieces."""
    model = nn.Sequential(nn.Linear(width_in, width_out), nn.GELU(), nn.ReLU())
    optimized = check_against_eager(model, torch.randn(30, width_in))
    assert primitive_count(optimized) == 0


def test_blocks_of_rows():
    """They are cut where they would leave the cache."""
    optimized = check_against_eager(nn.Linear(768, 40), torch.randn(500, 768))
    assert primitive_count(optimized) == 0


@pytest.mark.parametrize("width_out", [9, 12, 15, 16])
def test_a_weight_that_may_be_plain(width_out):
    """Without AVX-512 these are not packed in panels."""
    check_against_eager(
        nn.Linear(100, width_out), torch.randn(1, 100), also=(torch.randn(3, 100), torch.randn(30, 100))
    )


def test_any_rank_and_layout():
    x = torch.randn(6, 64)
    also = (
        x[0],
        torch.randn(2, 3, 64),
        torch.randn(2, 9, 64),
        torch.randn(64, 40).t(),
        torch.randn(40, 128)[:, ::2],
        torch.randn(1, 64).expand(40, 64),
        torch.randn(1, 2, 1, 3, 64),
        torch.randn(64, 6).t(),
        torch.randn(5, 2, 64).transpose(0, 1),
        torch.randn(4, 128)[:, ::2],
        torch.randn(1, 64).expand(3, 64),
        torch.randn(7, 65)[2:, 1:],
        torch.randn(0, 64),
    )
    optimized = check_against_eager(nn.Sequential(nn.Linear(64, 33), nn.ReLU()), x, also=also)
    assert primitive_count(optimized) == 0


ACTIVATIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda y: F.leaky_relu(y, 0.1),
    "leaky_relu_upwards": lambda y: F.leaky_relu(y, -0.5),
    "hardtanh": lambda y: F.hardtanh(y, -0.5, 0.75),
    "clamp_min": lambda y: y.clamp(min=-0.25),
    "clamp_max": lambda y: y.clamp(max=0.25),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "abs": torch.abs,
    "square": torch.square,
    "neg": torch.neg,
    # Right behind the linear these would be folded into the weight.
    "add_number": lambda y: y.abs() + 2.5,
    "mul_number": lambda y: y.abs() * 1.5,
    "rsub_number": lambda y: 1 - y,
    "div_number": lambda y: y.abs() / 3,
    "several": lambda y: F.relu(y * 2 + 1) * 0.5,
}
BINARY = {
    "add": torch.add,
    "radd": lambda y, other: other + y,
    "add_": lambda y, other: y.add_(other),
    "sub": torch.sub,
    "rsub": lambda y, other: other - y,
    "mul": torch.mul,
    "div": torch.div,
    "add_relu": lambda y, other: F.relu(y + other),
    "add_sigmoid": lambda y, other: torch.sigmoid(y + other),
    "add_clamp_gelu": lambda y, other: F.gelu((y + other).clamp(-1, 1)),
}


class Then(nn.Module):
    """A linear with something behind it."""

    def __init__(self, function, columns: int = 30) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(40, columns), function

    def forward(self, x: Tensor, *operands: Tensor) -> Tensor:
        return self.function(self.linear(x), *operands)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("rows", [1, 6, 22])
def test_activations(name, rows):
    model, x = Then(ACTIVATIONS[name]), torch.randn(rows, 40) * 4
    optimized = check_against_eager(model, x)
    assert optimized.packed_0.__getstate__()[0][3] != []
    assert primitive_count(optimized) == 0
    assert fallback_reasons(optimized) == []


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("rows", [1, MANY])
def test_activations_of_special_values(name, rows):
    skip_if_aten_has_no_limit(name)
    model = Then(ACTIVATIONS[name])
    model.linear.weight.zero_()
    special = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, 5e37, -5e37, 88.5, -88.5, 100.0, -100.0]
    numbers = torch.tensor([*special, -10.0, -6.0, -3.0, 3.0, 6.0, 10.0, 20.0, -20.0, 1e-6, -1e-6, 0.5, -0.5])
    model.linear.bias[: len(numbers)] = numbers
    x = torch.zeros(rows, 40)
    expected, actual = model(x), optimized_for(model, x)(x)
    torch.testing.assert_close(actual, expected, rtol=2e-6, atol=3e-7, equal_nan=True)


def test_activations_everywhere():
    """One input for each number: the activation is what differs from eager, not the sum."""
    numbers = torch.linspace(-30, 30, 30000)
    for name, function in ACTIVATIONS.items():
        model = nn.Linear(1, len(numbers))
        model.weight.zero_()
        model.bias.copy_(numbers)
        then = Then(function)
        then.linear = model
        x = torch.zeros(1, 1)
        message = f"{name} differs"
        torch.testing.assert_close(
            optimized_for(then, x)(x), then(x), rtol=2e-6, atol=1e-6, msg=lambda text, m=message: f"{m}: {text}"
        )


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("sizes", [("rows", "columns"), ("columns",), (1, "columns"), (1,), (1, 1)])
@pytest.mark.parametrize("rows", [3, 22])
@pytest.mark.parametrize("columns", [30, 150])  # in one panel, and in several with a last one that is not full
def test_operands(name, sizes, rows, columns):
    model, x = Then(BINARY[name], columns), torch.randn(rows, 40)
    other = torch.rand([{"rows": rows, "columns": columns}.get(size, size) for size in sizes]) + 0.5
    optimized = check_against_eager(model, x, other)
    assert optimized.packed_0.__getstate__()[0][3] != []
    assert primitive_count(optimized) == 0
    assert fallback_reasons(optimized) == []


def test_operands_that_aten_has_to_add():
    model, x = Then(torch.add), torch.randn(3, 40)
    optimized = optimized_for(model, x, torch.randn(3, 30))
    for other in (torch.randn(3, 1), torch.randn(2, 3, 30), torch.randn(3, 30).double()):
        assert_same(optimized(x, other), model(x, other))
    assert primitive_count(optimized) == 0
    assert fallback_reasons(optimized) == [
        "post-op add: its operand is broadcast in a way that oneDNN can't follow",
        "post-op add: its operand is not a float32 CPU tensor",
    ]


def test_an_operand_that_decides_the_layout():
    model, x, other = Then(BINARY["radd"]), torch.randn(3, 40), torch.randn(30, 3).t()
    assert_same(optimized_for(model, x, other)(x, other), model(x, other))


def test_a_post_op_that_neither_has():
    optimized = check_against_eager(
        nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Softplus(threshold=100)), torch.randn(2, 40)
    )
    assert primitive_count(optimized) == 0
    assert fallback_reasons(optimized) == ["post-op softplus: oneDNN does not give aten's result"]


def test_nan_and_infinity_stay_where_they_are():
    model, x = nn.Linear(70, 65), torch.randn(25, 70)
    model.weight[5, 7], model.weight[6, 8], model.weight[64, 9] = float("nan"), float("inf"), 0
    x[1, 9] = float("inf")
    x[2, 0] = float("nan")
    x[3, 8] = 0
    for rows in (x, x[:5], x[1:2], x[2:3], x[3:4]):
        actual, expected = optimized_for(model, x)(rows), model(rows)
        assert torch.equal(actual.isnan(), expected.isnan())
        assert_same(actual, expected)


@pytest.mark.parametrize("rows", [1, 2, 5, 50, 2000])
def test_neither_calls_nor_threads_change_a_bit(rows):
    x = torch.randn(rows, 600)
    optimized = optimized_for(nn.Sequential(nn.Linear(600, 1000 if rows < 100 else 70), nn.GELU()), x)
    expected = optimized(x)
    with own_thread_count():
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            assert all(torch.equal(optimized(x), expected) for _ in range(3))
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(y, expected) for y in pool.map(torch.inference_mode()(optimized), [x] * 16))
    assert primitive_count(optimized) == 0


@pytest.mark.parametrize(("rows", "outputs"), [(1, 1024), (15, 1024), (16, 40), (16, 1024), (MANY, 40)])
def test_math_mode_bf32(rows, outputs):
    """A weight too small for a copy in bfloat16 stays in float32."""
    model, x = nn.Linear(64, outputs), torch.randn(rows, 64)
    optimized = optimized_for(model, x, mode=FP32MathMode.BF32)
    optimized(x)
    is_for_pairs = (ipex.isa.has_fast_avx512_bf16() or ipex.isa.has_amx()) and rows > 1 and outputs == 1024
    assert primitive_count(optimized) == 0
    assert ("bfloat16_copy" in optimized.packed_0.describe()) == is_for_pairs
    assert_same(optimized(x), model(x), BF32_TOLERANCE if is_for_pairs else FP32_TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_weights_are_not_for_it(dtype):
    model, x = nn.Linear(64, 40).to(dtype), torch.randn(2, 64).to(dtype)
    assert optimized_for(model, x)(x).dtype == dtype


@pytest.mark.parametrize("sizes", [(1, 512, 512), (2, 1100, 1001), (1, 1101, 520), (3, 512, 512), (2, 64, 40)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_a_row_or_two_of_bfloat16(sizes, bias):
    """Large weights are read as oneDNN packed them. Post-ops come before the one rounding."""
    rows, inputs, outputs = sizes
    model = nn.Sequential(nn.Linear(inputs, outputs, bias), nn.GELU()).eval().bfloat16()
    x = torch.randn(rows, inputs).bfloat16()
    optimized = ipex.jit_optimize(torch.jit.trace(model, x))
    actual, expected = optimized(x), model(x)
    assert (actual.dtype, actual.stride()) == (expected.dtype, expected.stride())
    assert_no_worse(actual, expected, copy.deepcopy(model).double()(x.double()), torch.bfloat16)
    if ipex.isa.has_amx():
        assert primitive_count(optimized) == (rows > 2 or inputs * outputs < 2**17)


@pytest.mark.parametrize("inputs", [512, 513])
def test_a_nan_of_a_row_of_bfloat16_stays_in_it(inputs):
    model, x = nn.Linear(inputs, 512).eval().bfloat16(), torch.randn(2, inputs).bfloat16()
    x[0, inputs - 1] = float("nan")
    y = ipex.jit_optimize(torch.jit.trace(model, x))(x)
    assert y[0].isnan().all()
    assert y[1].isfinite().all()


def test_saved_and_copied(tmp_path):
    x = torch.randn(3, 40)
    optimized = optimized_for(Then(ACTIVATIONS["several"]), x)
    for again in (assert_round_trip(optimized, tmp_path, x), copy.deepcopy(optimized)):
        assert torch.equal(again(x), optimized(x))
        assert primitive_count(again) == 0


def test_inference_tensors():
    model, x = nn.Linear(64, 40).eval(), torch.randn(2, 64)
    optimized = optimized_for(model, x)
    with torch.inference_mode():
        assert optimized(x).is_inference()
    assert not optimized(x).is_inference()


def image(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


LEAST_CHANNELS = 24  # for more pixels than a few


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("channels_out", [1, 7, 8, 16, 24, 30, 64, 100])
@pytest.mark.parametrize("channels_in", [1, 3, 8, 20, 64, 800])
def test_single_pixels(channels_in, channels_out, bias):
    """Few pixels and many, in all layouts, batched or not."""
    also = (
        image(3, channels_in, 5, 5),
        image(1, channels_in, 1, 1),
        torch.randn(1, channels_in, 4, 4),
        torch.randn(channels_in, 5, 6),
        torch.randn(2, 2 * channels_in, 9, 7)[:, ::2, 1:, ::2],
    )
    model = nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, bias=bias), nn.ReLU())
    optimized = check_against_eager(model, image(1, channels_in, 7, 9), also=also)
    assert primitive_count(optimized) == 0 or min(channels_in, channels_out) < LEAST_CHANNELS
    assert fallback_reasons(optimized) == []


def test_single_elements_of_a_sequence():
    """They are pixels of an image one pixel high."""
    also = (torch.randn(1, 40, 3), torch.randn(40, 30), torch.randn(2, 50, 40).transpose(1, 2))
    model = nn.Sequential(nn.Conv1d(40, 30, 1), nn.ReLU())
    optimized = check_against_eager(model, torch.randn(2, 40, 50), also=also)
    assert primitive_count(optimized) == 0
    assert fallback_reasons(optimized) == []


def test_few_pixels_of_few_channels():
    optimized = check_against_eager(nn.Conv2d(8, 4, 1), image(2, 8, 1, 1), also=(image(1, 8, 4, 4),))
    assert primitive_count(optimized) == 0
    optimized(image(1, 8, 4, 5))
    assert primitive_count(optimized) == 1


@pytest.mark.parametrize(("width", "by_onednn"), [(16, False), (17, True)])
def test_many_pixels(width, by_onednn):
    optimized = check_against_eager(nn.Conv2d(50, 30, 1), image(4, 50, 16, width))
    assert primitive_count(optimized) == by_onednn


NOT_PRODUCTS = {
    "stride": {"stride": 2},
    "padding": {"padding": 1},
    "groups": {"groups": 4},
}


@pytest.mark.parametrize("name", NOT_PRODUCTS)
def test_other_single_pixels_are_onednns(name):
    model = nn.Sequential(nn.Conv2d(32, 32, 1, **NOT_PRODUCTS[name]), nn.ReLU())
    optimized = check_against_eager(model, image(2, 32, 8, 9))
    in_a_corner = ["in this corner oneDNN's kernels read what they should not"] if name == "padding" else []
    assert fallback_reasons(optimized) == in_a_corner
    assert primitive_count(optimized) == (not in_a_corner)


@pytest.mark.parametrize("name", ["add", "radd", "mul", "add_relu"])
@pytest.mark.parametrize("sizes", [(2, 24, 6, 7), (24, 1, 1), (1,)])
def test_operands_of_single_pixels(name, sizes):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(32, 24, 1)

        def forward(self, x: Tensor, other: Tensor) -> Tensor:
            return BINARY[name](self.conv(x), other)

    other = image(*sizes) if len(sizes) == 4 else torch.randn(sizes)
    optimized = check_against_eager(Model(), image(2, 32, 6, 7), other)
    assert primitive_count(optimized) == 0
    assert fallback_reasons(optimized) == []


def test_single_pixels_saved_and_copied(tmp_path):
    x = image(2, 32, 6, 7)
    optimized = optimized_for(nn.Conv2d(32, 24, 1), x)
    for again in (assert_round_trip(optimized, tmp_path, x), copy.deepcopy(optimized)):
        assert torch.equal(again(x), optimized(x))
        assert primitive_count(again) == 0


def test_single_pixels_in_bf32():
    model, x = nn.Conv2d(64, 64, 1), image(1, 64, 14, 14)
    optimized = optimized_for(model, x, mode=FP32MathMode.BF32)
    optimized(x)
    assert primitive_count(optimized) == 0
    rounds = ipex.isa.has_fast_avx512_bf16() or ipex.isa.has_amx()
    assert_same(optimized(x), model(x), BF32_TOLERANCE if rounds else FP32_TOLERANCE)
