"""Linears whose weight alone is quantised: the result is that of the rounded weight in float32."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_same, fallback_reasons, own_thread_count

HALF_BYTES = ("int4", "nf4")
SMALLEST = torch.finfo(torch.float32).tiny
FORMATS = pytest.mark.parametrize(
    ("format", "group_size", "symmetric"),
    [
        ("int8", 0, True),
        ("int8", 0, False),
        ("int8", 32, True),
        ("int8", 128, False),
        ("int4", 0, True),
        ("int4", 32, True),
        ("int4", 64, False),
        ("int4", 128, True),
        ("int4", 32, False),
        ("nf4", 0, True),
        ("nf4", 32, True),
        ("nf4", 64, True),
        ("bfloat16", 0, True),
        ("float8_e4m3fn", 0, True),
        ("float8_e4m3fn", 32, True),
        ("float8_e5m2", 0, True),
        ("float8_e5m2", 128, True),
    ],
)


def linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias).eval()


def packed(model: nn.Linear, format: str, group_size: int, symmetric: bool, *post_ops: str) -> torch.ScriptObject:
    prepack = torch.ops.ipex.weight_only_linear_prepack
    return prepack(model.weight, model.bias, list(post_ops), format, group_size, symmetric)


def run(context: torch.ScriptObject, x: Tensor, *operands: Tensor) -> Tensor:
    return torch.ops.ipex.weight_only_linear_run(x, context, list(operands), True)


def rounded(weight: Tensor, format: str, group_size: int, symmetric: bool) -> Tensor:
    """The numbers that the codes stand for. How 4 bits are rounded is test_round_weight.py's matter."""
    outputs, inputs = weight.shape
    size = min(group_size or inputs, inputs)
    if format in HALF_BYTES:
        (_, tensors, _, _), _ = packed(bare(weight), format, group_size, symmetric).__getstate__()
        return numbers(tensors, inputs, size)
    if not format.startswith("int"):
        return in_floats(weight, getattr(torch, format), size)
    groups = F.pad(weight, (0, -inputs % size)).view(outputs, -1, size)
    if symmetric:
        scale = (groups.abs().amax(2, keepdim=True) / 127).clamp_min(SMALLEST)
        rounded = (groups / scale).round().clamp(-128, 127) * scale
    else:
        low, high = groups.amin(2, keepdim=True).clamp_max(0), groups.amax(2, keepdim=True).clamp_min(0)
        scale = (high / 255 - low / 255).clamp_min(SMALLEST)
        offset = (-low / scale).round() - 128
        rounded = (((groups / scale).round() + offset).clamp(-128, 127) - offset) * scale
    return rounded.view(outputs, -1)[:, :inputs]


def bare(weight: Tensor) -> nn.Linear:
    model = linear(weight.shape[1], weight.shape[0], bias=False)
    model.weight.data = weight.detach()
    return model


def numbers(tensors: dict[str, Tensor], inputs: int, size: int) -> Tensor:
    """What the tensors of a state stand for, each by itself."""
    codes = tensors["codes"]
    if codes.dtype == torch.uint8:
        codes = torch.stack([codes & 15, codes >> 4], 2).flatten(1)[:, :inputs].long()
        codes = tensors["values"][codes] if "values" in tensors else torch.where(codes > 7, codes - 16, codes)

    def of_inputs(of_groups: Tensor) -> Tensor:
        return of_groups.repeat_interleave(size, 1)[:, :inputs]

    offsets = tensors.get("offsets", torch.zeros_like(tensors["scales"]))
    return (codes.float() - of_inputs(offsets)) * of_inputs(tensors["scales"])


def in_floats(weight: Tensor, dtype: torch.dtype, size: int) -> Tensor:
    if dtype == torch.bfloat16:
        return weight.to(dtype).float()
    outputs, inputs = weight.shape
    groups = F.pad(weight, (0, -inputs % size)).view(outputs, -1, size)
    scale = (groups.abs().amax(2, keepdim=True) / torch.finfo(dtype).max).clamp_min(SMALLEST)
    return ((groups / scale).to(dtype).float() * scale).view(outputs, -1)[:, :inputs]


def expected(model: nn.Linear, x: Tensor, *recipe: object) -> Tensor:
    return F.linear(x, rounded(model.weight, *recipe), model.bias)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@FORMATS
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 12, 13, 30, 31, 48, 49, 64, 65])
def test_the_weight_is_rounded_and_nothing_else(format, group_size, symmetric, rows):
    for inputs, outputs in ((1, 1), (37, 29), (129, 130), (520, 65)):
        model, x = linear(inputs, outputs), torch.randn(rows, inputs)
        context = packed(model, format, group_size, symmetric)
        assert_same(run(context, x), expected(model, x, format, group_size, symmetric))
        assert context.fallback_reasons() == []


@pytest.mark.parametrize("inputs", [0, -8])
def test_what_is_no_weight(inputs):
    codes, scales = torch.zeros(4, 0, dtype=torch.int8), torch.ones(4, 1)
    plain = torch.ops.ipex.weight_only_linear
    expected = f"expected a weight of one of .* for {inputs} inputs, got (signed char|Char)"
    with pytest.raises(RuntimeError, match=expected):
        plain(torch.randn(3, 0), codes, scales, None, None, None, inputs, 8, 24, None)


@FORMATS
def test_what_a_file_holds(format, group_size, symmetric):
    model, x = linear(141, 29), torch.randn(5, 141)
    model.weight[7] = 0
    context = packed(model, format, group_size, symmetric, "relu")
    (version, tensors, integers, post_ops), _ = context.__getstate__()
    size = group_size or 141
    dtype = torch.uint8 if format in HALF_BYTES else getattr(torch, format)
    assert (version, integers, post_ops) == (
        8 if format == "nf4" else 1 if format.startswith("int") else 5,
        {"inputs": [141], "group_size": [size]},
        ["relu"],
    )
    groups = -(-141 // size)
    assert tensors["codes"].shape == (29, 71 if format in HALF_BYTES else 141)
    assert tensors["codes"].dtype == dtype
    assert tensors["scales"].shape == (29, groups)
    assert ("offsets" in tensors) == (not symmetric)
    assert ("values" in tensors) == (format == "nf4")
    assert torch.equal(numbers(tensors, 141, size), rounded(model.weight, format, group_size, symmetric))
    assert torch.equal(run(copy.deepcopy(context), x), run(context, x))


@pytest.mark.parametrize("rows", [2, 60])
def test_inputs_stay_float32(rows):
    """A row may be a million times as large as another, and one number of a row as the others."""
    model, x = linear(100, 40, bias=False), torch.randn(rows, 100)
    x[0] *= 1e6
    x[:, 5] *= 1e4
    y, e = run(packed(model, "int8", 0, True), x), expected(model, x, "int8", 0, True)
    for row in range(rows):
        assert_same(y[row], e[row])


@pytest.mark.parametrize("rows", [1, 2, 20])
@pytest.mark.parametrize("format", ["int8", "int4"])
def test_a_number_that_meets_zeros_hides_no_other_group(format, rows):
    model, x = linear(512, 40, bias=False), torch.randn(rows, 512)
    model.weight[:, :128] = 0
    x[:, 5] = 1e12
    assert_same(run(packed(model, format, 128, True), x), expected(model, x, format, 128, True))


@pytest.mark.parametrize("rows", [4, 60])
@pytest.mark.parametrize(("format", "inputs"), [("int4", 70), ("int8", 70), ("int8", 700)])
def test_nan_and_infinity_stay_in_their_row(rows, format, inputs):
    model, x = linear(inputs, 50), torch.randn(rows, inputs)
    clean = run(packed(model, format, 32, True), x)
    x[1, 69], x[2, 3] = float("nan"), float("inf")
    y = run(packed(model, format, 32, True), x)
    assert y[1].isnan().all()
    assert not y[2].isfinite().any()
    for row in (0, *range(3, rows)):
        assert torch.equal(y[row], clean[row])


@pytest.mark.parametrize("rows", [2, 60])
def test_post_ops(rows):
    model, x, other = linear(70, 90), torch.randn(rows, 70), torch.randn(rows, 90)
    recipe = ("int4", 32, False)
    y = expected(model, x, *recipe)
    assert_same(run(packed(model, *recipe, "silu"), x), F.silu(y))
    assert_same(run(packed(model, *recipe, "add", "relu"), x, other), (y + other).relu())
    context = packed(model, *recipe, "relu", "pow(2.5)")
    assert_same(run(context, x), y.relu().pow(2.5))
    assert context.fallback_reasons() == ["post-op pow: oneDNN does not give aten's result"]


def test_shapes_and_strides():
    model, wide = linear(40, 30), torch.randn(9, 100)
    context = packed(model, "int4", 16, True)
    for x in (
        torch.randn(40),
        torch.randn(2, 3, 40),
        wide[:, 3:43],
        wide[::4, :40],
        torch.randn(40, 9).t(),
        torch.randn(1, 40).expand(7, 40),
    ):
        assert_same(run(context, x), expected(model, x, "int4", 16, True))
    assert run(context, torch.randn(0, 40)).shape == (0, 30)


@pytest.mark.parametrize("rows", [1, 5, 60])
def test_neither_calls_nor_threads_change_a_bit(rows):
    model, x = linear(600, 900), torch.randn(rows, 600)
    context = packed(model, "int4", 64, False)
    y = run(context, x)
    with own_thread_count():
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            assert all(torch.equal(run(context, x), y) for _ in range(3))


def test_gradients_go_through_the_rounded_weight():
    model, x = linear(40, 30), torch.randn(5, 40)
    recipe = ("int4", 16, False)
    with torch.enable_grad():
        x.requires_grad_()
        run(packed(model, *recipe), x).sum().backward()
    assert_same(x.grad, rounded(model.weight, *recipe).sum(0).expand(5, 40).contiguous())


@pytest.mark.parametrize("group_size", [12, 4, -8])
def test_what_can_not_be_packed(group_size):
    with pytest.raises(RuntimeError, match="expected a group_size of a multiple of 8, or 0 for whole rows"):
        packed(linear(40, 30), "int8", group_size, True)
    with pytest.raises(RuntimeError, match="expected one of int8, int4, nf4, .*, got 'float8_e8m0fnu'"):
        packed(linear(40, 30), "float8_e8m0fnu", 0, True)


@pytest.mark.parametrize("rows", [1, 6, 13])
def test_every_value_of_a_table(rows):
    """Each input meets one code alone, so that nothing is rounded."""
    _, _, offsets, values = torch.ops.ipex.round_weight(torch.randn(4, 16), "nf4", 0, True)
    assert offsets is None
    assert values.tolist() == sorted(values.tolist())
    assert (values[0], values[7], values[15]) == (-1, 0, 1)
    places = torch.arange(16, dtype=torch.uint8).repeat(16, 1)
    halves = places[:, ::2] | places[:, 1::2] << 4
    prepack = torch.ops.ipex.weight_only_linear_prepack.codes
    context = prepack(halves, torch.full((16, 1), 2.0), None, None, None, [], 16, 16, 24, values)
    for first in range(0, 16, rows):
        y = run(context, torch.eye(16)[first : first + rows])
        assert torch.equal(y, 2 * values[first : first + rows].unsqueeze(1).expand(-1, 16))


@pytest.mark.parametrize("format", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("rows", [1, 6, 49])
def test_every_finite_number_of_8_bits(format, rows):
    """Each input meets one code alone, so that nothing is rounded."""
    numbers = torch.arange(256, dtype=torch.uint8).view(getattr(torch, format)).float()
    numbers = numbers[numbers.isfinite()]
    model = linear(len(numbers), 16, bias=False)
    model.weight.copy_(numbers.expand(16, -1))
    for flush in (False, True):
        assert torch.set_flush_denormal(flush)
        try:
            for first in range(0, len(numbers), rows):
                x = torch.eye(len(numbers))[first : first + rows]
                y = run(packed(model, format, 0, True), x)
                assert torch.equal(y, numbers[first : first + rows].unsqueeze(1).expand(-1, 16))
        finally:
            torch.set_flush_denormal(False)


def test_bfloat16_takes_the_largest_floats():
    model = linear(40, 30, bias=False)
    model.weight.fill_(torch.finfo(torch.float32).max)
    y = run(packed(model, "bfloat16", 0, True), torch.eye(40))
    assert torch.equal(y, torch.full((40, 30), torch.finfo(torch.bfloat16).max))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codes": torch.zeros(29, 37, dtype=torch.uint8)}, "uint8 \\[any, 19\\], got uint8 \\[29, 37\\]"),
        ({"codes": torch.zeros(28, 19, dtype=torch.uint8)}, "scales to be a plain CPU tensor of float32 \\[28, 3\\]"),
        ({"scales": torch.zeros(29, 2)}, "scales to be a plain CPU tensor of float32 \\[29, 3\\]"),
        ({"offsets": torch.zeros(29, 4)}, "offsets to be a plain CPU tensor of float32 \\[29, 3\\]"),
        ({"group_size": [24]}, "float32 \\[29, 2\\]"),
        ({"group_size": [20]}, "multiple of 8 or of all"),
        ({"inputs": [39]}, "uint8 \\[any, 20\\], got uint8 \\[29, 19\\]"),
        ({"codes": torch.zeros(29, 37)}, "weight of one of int8, int4"),
        ({"values": torch.zeros(16)}, "expected the values of nf4, got others"),
        ({"values": torch.zeros(15)}, "values to be a plain CPU tensor of float32 \\[16\\]"),
        ({"codes": torch.zeros(29, 37, dtype=torch.float8_e5m2)}, "no offsets beside a weight of float8_e5m2"),
        ({"order": torch.arange(36)}, "int64 \\[37\\], got int64 \\[36\\]"),
        ({"order": torch.zeros(37, dtype=torch.int64)}, "each of 37 inputs once"),
        ({"order": torch.arange(37.0)}, "int64 \\[37\\], got float32 \\[37\\]"),
    ],
)
def test_damaged_states(changes, message):
    (version, tensors, integers, post_ops), class_name = packed(linear(37, 29), "int4", 16, False).__getstate__()
    tensors = {**tensors, **{key: value for key, value in changes.items() if isinstance(value, Tensor)}}
    integers = {key: changes.get(key, value) for key, value in integers.items()}
    context = torch.ScriptObject.__new__(torch.ScriptObject)
    with pytest.raises(RuntimeError, match=message):
        context.__setstate__(((version, tensors, integers, post_ops), class_name))


@FORMATS
@pytest.mark.parametrize("inputs", [37, 160])
def test_rows_of_it_are_its_numbers(format, group_size, symmetric, inputs):
    """As a table of embeddings reads them."""
    if group_size > inputs:
        pytest.skip("a group has at most all inputs")
    model = linear(inputs, 45, bias=False)
    context = packed(model, format, group_size, symmetric)
    numbers = rounded(model.weight, format, group_size, symmetric)
    for places in (torch.tensor(44), torch.tensor([[44, 0], [7, 7]]), torch.arange(45, dtype=torch.int32)):
        found = torch.ops.ipex.rows_of_codes(places, context)
        assert found.shape == (*places.shape, inputs)
        assert_same(found, numbers[places.long()], tolerance=1e-6)
    assert torch.ops.ipex.rows_of_codes(torch.empty(0, 3, dtype=torch.long), context).shape == (0, 3, inputs)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (torch.tensor([3, 29]), "expected indices from 0 to 28, got 29"),
        (torch.tensor([-1]), "expected indices from 0 to 28, got -1"),
        (torch.tensor([1.0]), "expected int64 or int32 indices on the CPU, got float32"),
    ],
)
def test_other_places_are_refused(places, message):
    context = packed(linear(37, 29), "int4", 16, False)
    with pytest.raises((IndexError, RuntimeError), match=message):
        torch.ops.ipex.rows_of_codes(places, context)


def test_one_weight_with_other_post_ops():
    """What is made again reads the same memory, and is the same where nothing differs."""
    again = torch.ops.ipex.weight_only_linear_prepack.again
    first, x, more = packed(linear(256, 512), "int8", 32, True, "relu"), torch.randn(3, 256), torch.randn(3, 512)
    before = ipex.memory_allocated()
    assert again(first, []) == first
    other = again(first, ["radd", "tanh"], 8)
    assert ipex.memory_allocated() == before
    assert "rows=8 bits, bias=1, post_ops=relu" in other.describe()
    assert "radd" in other.describe()
    assert_same(run(other, x, more), (run(first, x) + more).tanh(), tolerance=0.03)
    assert_same(run(again(first, ["tanh"]), x), run(first, x).tanh(), tolerance=1e-6)
    with pytest.raises(RuntimeError, match="expected row_bits of 8, 16 or 24, got 9"):
        again(first, [], 9)


def test_the_description():
    text = packed(linear(37, 29), "int4", 16, False).describe()
    assert text.startswith(
        "ipex::weight_only_linear_run(weight=[29, 37], weight_format=int4, group=16, symmetric=0, scales="
    )
    assert text.endswith("rows=float32, bias=1, post_ops=)")


@pytest.mark.parametrize("dtype", ["int8", "int4", "nf4", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_a_model(tmp_path, dtype):
    """From the front door: saved, loaded, and the same."""
    model, x = nn.Sequential(linear(200, 300), nn.ReLU(), linear(300, 100)).eval(), torch.randn(2, 200)
    quantized = ipex.quantization.weight_only(model, x, dtype=dtype)
    recipe = (dtype, {"int4": 128, "nf4": 64}.get(dtype, 0), True)
    assert_same(quantized(x), expected(model[2], expected(model[0], x, *recipe).relu(), *recipe))
    quantized.save(tmp_path / "model.pt")
    loaded = ipex.load(tmp_path / "model.pt")
    assert torch.equal(loaded(x), quantized(x))
    assert fallback_reasons(loaded) == []


def test_scales_and_offsets_are_held_once():
    """Groups of 8 codes of 4 bits, in 64 MiB, have scales and offsets of 64 MiB each: only the panels have them."""
    code = """
import re, torch, ipex

def resident():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

prepack = torch.ops.ipex.weight_only_linear_prepack.codes
of_groups = torch.rand(1 << 13, 1 << 11)
codes = torch.zeros(1 << 13, 1 << 13, dtype=torch.uint8)
before = resident()
context = prepack(codes, of_groups, of_groups, None, None, [], 1 << 14, 8)
print(resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packed = 3 * 64
    assert 0.9 * packed < float(done.stdout) < 1.2 * packed
