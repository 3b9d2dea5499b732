"""Products of many float32 rows on AMX's tiles: as exact as those of floats."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import optimized_for, own_thread_count, primitive_count

pytestmark = pytest.mark.skipif(not ipex.isa.has_amx(), reason="AMX is not used")

ROWS = [32, 48, 50, 95, 96, 97, 128, 130, 300]


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def error(y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> float:
    """The largest error, in what a float's rounding does to the sum of all magnitudes."""
    exact = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    magnitude = F.linear(x.double().abs(), weight.double().abs())
    return float(((y - exact).abs() / magnitude).max() * 2**24)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("inputs", "outputs"), [(128, 128), (333, 170), (768, 160), (2000, 130)])
def test_as_exact_as_floats(rows, inputs, outputs):
    """Two parts of a float instead of three would be wrong by 2^7."""
    model, x = nn.Linear(inputs, outputs).eval(), torch.randn(rows, inputs)
    x[:, ::7] *= 1000
    assert error(optimized_for(model, x)(x), x, model.weight, model.bias) < 16


@pytest.mark.parametrize("rows", [12, 16, 33, *ROWS])
@pytest.mark.parametrize(
    ("dtype", "group_size", "symmetric"),
    [
        ("int8", 0, True),
        ("int8", 0, False),
        ("int8", 64, True),
        ("int8", 24, False),
        ("int4", 128, True),
        ("int4", 64, False),
        ("int4", 32, True),
        ("nf4", 32, True),
        ("nf4", 0, True),
        ("bfloat16", None, True),
        ("float8_e4m3fn", 0, True),
        ("float8_e4m3fn", 96, True),
        ("float8_e5m2", 32, True),
    ],
)
def test_weights_of_few_bits(rows, dtype, group_size, symmetric):
    model, x = nn.Linear(520, 130, bias=False).eval(), torch.randn(rows, 520)
    quantized = ipex.quantization.weight_only(model, x, dtype=dtype, group_size=group_size, symmetric=symmetric)
    weight = torch.cat([quantized(part) for part in torch.eye(520).split(8)]).t()
    assert error(quantized(x), x, weight, None) < 16


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf"), 3e38, 1e-30, 1e-40])
@pytest.mark.parametrize("rows", [60, 100])
def test_rows_that_tiles_can_not_have(odd, rows):
    """They are computed as floats, and those beside them change in no bit."""
    model, x = nn.Linear(256, 200).eval(), torch.randn(rows, 256)
    linear, quantized = optimized_for(model, x), ipex.quantization.weight_only(model, x, dtype="int4")
    clean = [linear(x), quantized(x)]
    for row in (0, 17, 18, rows - 1):
        x[row] = 0
        x[row, 5] = odd
    beside = [row for row in range(rows) if row not in (0, 17, 18, rows - 1)]
    for call, y in zip((linear, quantized), clean):
        assert torch.equal(call(x)[beside], y[beside])
    torch.testing.assert_close(linear(x), model(x), rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_rows_that_tiles_can_not_have_are_added_to_a_residual_once(threads):
    """Which may be the memory of the result."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 200), nn.Linear(256, 200)

        def forward(self, x: Tensor, r: Tensor) -> Tensor:
            return self.second(x) + self.first(r)

    model, x, r = Model().eval(), torch.randn(700, 256), torch.randn(700, 64)
    x[3, 7], x[299, 8], x[300, 9] = float("inf"), float("nan"), 3e38
    with own_thread_count():
        torch.set_num_threads(threads)
        actual = optimized_for(model, x, r)(x, r)
    torch.testing.assert_close(actual, model(x, r), rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 3e38, -1e30])
@pytest.mark.parametrize("rows", [64, 100])
def test_weights_that_tiles_can_not_have(odd, rows):
    model, x = nn.Linear(256, 200).eval(), torch.randn(rows, 256)
    model.weight[7, 9] = odd
    y = optimized_for(model, x)(x)
    torch.testing.assert_close(y, model(x), rtol=1e-5, atol=1e-5 * (abs(odd) if abs(odd) < 1e31 else 1), equal_nan=True)


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "bytes_"),
    [
        (64, 256, 200, 256 * 256 * 6),
        (30, 256, 1024, 256 * 1024 * 6),
        (95, 300, 128, 320 * 128 * 6),
        (28, 256, 256, 0),
        (40, 256, 256, 0),
        (96, 256, 256, 0),
        (64, 256, 120, 0),
        (64, 100, 130, 0),
        (64, 768, 768, 0),
    ],
)
def test_small_weights_of_some_rows_keep_tiles(rows, inputs, outputs, bytes_):
    model, x = nn.Linear(inputs, outputs).eval(), torch.randn(rows, inputs)
    optimized = optimized_for(model, x)
    y = optimized(x)
    assert error(y, x, model.weight, model.bias) < 16
    kept = re.findall(r"tiles_bytes=(\d+)", optimized.packed_0.describe())
    assert kept == ([str(bytes_)] if bytes_ else [])
    many = torch.cat([x, torch.randn(200, inputs)])
    torch.testing.assert_close(optimized(many)[:rows], y, rtol=1e-5, atol=1e-5)


def test_kept_tiles_come_anew_after_loading(tmp_path):
    model, x = nn.Linear(256, 256).eval(), torch.randn(64, 256)
    optimized = optimized_for(model, x)
    y = optimized(x)
    optimized.save(tmp_path / "model.pt")
    loaded = ipex.load(tmp_path / "model.pt")
    assert "tiles_bytes=" not in loaded.packed_0.describe()
    assert torch.equal(loaded(x), y)
    assert "tiles_bytes=" in loaded.packed_0.describe()


def test_tiny_weights():
    model, x = nn.Linear(256, 200).eval(), torch.randn(100, 256)
    model.weight *= 1e-30
    model.bias *= 0
    y = optimized_for(model, x)(x)
    assert error(y, x, model.weight, None) < 16


@pytest.mark.parametrize("rows", [96, 200])
def test_post_ops_and_a_residual(rows):
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(256, 300), nn.Linear(300, 256)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.second(F.gelu(self.first(x)))

    model, x = Block().eval(), torch.randn(rows, 256)
    torch.testing.assert_close(optimized_for(model, x)(x), model(x), rtol=1e-5, atol=1e-5)


def test_linears_of_one_input():
    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linears = nn.ModuleList(nn.Linear(256, width) for width in (256, 256, 96))

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return tuple(linear(x) for linear in self.linears)

    model, x = Three().eval(), torch.randn(100, 256)
    for y, linear in zip(optimized_for(model, x)(x), model.linears):
        assert error(y, x, linear.weight, linear.bias) < 16


@pytest.mark.parametrize("stride", [1, 2, 3, (1, 2), (2, 1)])
@pytest.mark.parametrize(("channels", "height"), [(256, 20), (160, 65)])
def test_convolutions_of_pixels(channels, height, stride):
    convolution, image = nn.Conv2d(channels, 130, 1, stride=stride).eval(), torch.randn(2, channels, height, 31)
    optimized = optimized_for(convolution, image)
    for x in (image, image.to(memory_format=torch.channels_last), torch.randn(1, 2 * channels, 31, 40)[:, ::2]):
        y = optimized(x)
        down, across = convolution.stride
        pixels = x[:, :, ::down, ::across].permute(0, 2, 3, 1).flatten(0, 2)
        result = y.permute(0, 2, 3, 1).flatten(0, 2)
        assert y.stride() == convolution(x).stride()
        assert error(result, pixels, convolution.weight[:, :, 0, 0], convolution.bias) < 16
    assert primitive_count(optimized) == 0


def test_convolutions_of_few_channels_are_onednns():
    for layer in (nn.Conv2d(256, 64, 1), nn.Conv2d(64, 256, 1), nn.Conv2d(100, 160, 1, stride=2)):
        x = torch.randn(1, layer.in_channels, 40, 40)
        optimized = optimized_for(layer.eval(), x)
        torch.testing.assert_close(optimized(x), layer(x), rtol=1e-5, atol=1e-5)
        assert primitive_count(optimized) == 1


def test_elements_of_a_sequence_that_windows_skip():
    layer, x = nn.Conv1d(140, 130, 1, stride=3).eval(), torch.randn(2, 140, 500)
    optimized = optimized_for(layer, x)
    torch.testing.assert_close(optimized(x), layer(x), rtol=1e-5, atol=1e-5)
    assert primitive_count(optimized) == 0


def test_a_residual_of_skipped_pixels():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pixels, self.windows = nn.Conv2d(128, 160, 1, stride=2), nn.Conv2d(128, 160, 3, stride=2, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.windows(x) + self.pixels(x))

    model, x = Block().eval(), torch.randn(2, 128, 31, 30)
    before = x.clone()
    torch.testing.assert_close(optimized_for(model, x)(x), model(x), rtol=1e-4, atol=1e-5)
    assert torch.equal(x, before)


@pytest.mark.parametrize("rows", [64, 300])
def test_neither_calls_nor_threads_change_a_bit(rows):
    model, x = nn.Linear(700, 700).eval(), torch.randn(rows, 700)
    calls = [optimized_for(model, x), ipex.quantization.weight_only(model, x, dtype="int4")]
    results = [call(x) for call in calls]
    with own_thread_count():
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            for call, y in zip(calls, results):
                assert all(torch.equal(call(x), y) for _ in range(3))
