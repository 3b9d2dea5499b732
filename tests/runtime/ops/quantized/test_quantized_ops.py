"""Layers of 8-bit numbers against the same arithmetic in plain tensors. Scales are powers of two: sums are exact."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ipex import isa
from support import assert_same, own_thread_count

OPS = torch.ops.ipex
STEP = 2.0**-6


def numbers(*sizes: int) -> Tensor:
    return torch.randint(0, 256, sizes, dtype=torch.uint8)


def weight_of(*sizes: int) -> tuple[Tensor, Tensor]:
    """Return an int8 weight and a scale per output channel."""
    return torch.randint(-127, 128, sizes, dtype=torch.int8), 2.0 ** -torch.randint(4, 9, sizes[:1]).float()


def floats(x: Tensor, affine: list[float]) -> Tensor:
    return (x.double() - affine[1]) * affine[0]


def rounded(y: Tensor, affine: list[float]) -> Tensor:
    """As eager rounds: to the nearest, half to even."""
    return (y / affine[0] + affine[1]).round().clamp(0, 255).to(torch.uint8)


def run_linear(x, weight, scales, bias, post_ops=(), x_affine=(STEP, 0), result=(), operands=(), affines=()):
    context = OPS.quantized_linear_prepack(
        weight, scales, bias, list(post_ops), list(x_affine), list(result), list(affines)
    )
    return OPS.quantized_linear_run(x, context, list(operands), True), context


def assert_computed_by_onednn(context) -> None:
    """Where the CPU has the instructions."""
    if isa.has_avx512_vnni() or isa.current() == isa.Level.AVX2_VNNI:
        assert context.fallback_reasons() == []
    else:
        assert any("no int8 instructions" in reason for reason in context.fallback_reasons())


@pytest.mark.parametrize("zero_point", [0, 3, 128])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 7), (16, 64, 48), (130, 100, 33), (2, 768, 256)])
def test_linear_is_exact(sizes, zero_point):
    rows, depth, columns = sizes
    x, (weight, scales), bias = numbers(rows, depth), weight_of(columns, depth), torch.randn(columns)
    affine = [STEP, zero_point]
    expected = floats(x, affine) @ (weight.double() * scales[:, None].double()).t()
    y, context = run_linear(x, weight, scales, None, x_affine=affine)
    assert torch.equal(y.double(), expected)
    assert_computed_by_onednn(context)
    y, _ = run_linear(x, weight, scales, bias, ["relu"], x_affine=affine)
    assert_same(y.double(), (expected + bias.double()).relu(), 1e-6)


@pytest.mark.parametrize("result", [[2.0**-2, 0], [2.0**-3, 77], [2.0**-9, 255]])
def test_a_result_in_numbers_is_rounded_once_and_held(result):
    x, (weight, scales) = numbers(9, 40), weight_of(24, 40)
    expected = rounded(floats(x, [STEP, 100]) @ (weight.double() * scales[:, None].double()).t(), result)
    y, context = run_linear(x, weight, scales, None, x_affine=[STEP, 100], result=result)
    assert y.dtype == torch.uint8
    assert torch.equal(y, expected)
    assert_computed_by_onednn(context)


@pytest.mark.parametrize("post_op", ["add", "add_", "radd"])
@pytest.mark.parametrize("operand_affine", [[0.0, 0.0], [2.0**-3, 0], [2.0**-4, 131]])
def test_a_residual_is_added_in_floats_or_in_numbers(post_op, operand_affine):
    x, (weight, scales) = numbers(2, 9, 40), weight_of(24, 40)
    in_numbers = operand_affine[0] != 0
    operand = numbers(2, 9, 24) if in_numbers else torch.randint(-50, 50, (2, 9, 24)).float() / 8
    added = floats(operand, operand_affine) if in_numbers else operand.double()
    expected = floats(x, [STEP, 7]) @ (weight.double() * scales[:, None].double()).t() + added
    kept = operand.clone()
    y, context = run_linear(
        x, weight, scales, None, [post_op, "relu"], [STEP, 7], operands=[operand], affines=operand_affine
    )
    torch.testing.assert_close(y.double(), expected.relu(), rtol=1e-6, atol=1e-6)
    assert torch.equal(operand, kept)
    assert_computed_by_onednn(context)


@torch.jit.script
def residual(
    x: Tensor,
    first: torch.classes.ipex.QuantizedLinearContext,
    second: torch.classes.ipex.QuantizedLinearContext,
):
    return torch.ops.ipex.quantized_linear_run(
        x, second, [torch.ops.ipex.quantized_linear_run(x, first, [], True)], True
    )


def test_a_residual_that_nobody_else_reads_becomes_the_result():
    x = numbers(9, 40)
    inner, outer = [2.0**-3, 77.0], [2.0**-2, 9.0]
    first = run_linear(x, *weight_of(24, 40), None, ["relu"], [STEP, 3.0], inner)[1]
    weight, scales = weight_of(24, 40)
    arguments = (None, ["add", "relu"], [STEP, 3.0], outer, inner)
    second = OPS.quantized_linear_prepack(weight, scales, *arguments)
    held = OPS.quantized_linear_run(x, first, [], True)
    expected = OPS.quantized_linear_run(x, second, [held], True)
    for _ in range(2):
        assert torch.equal(residual(x, first, second), expected)
    if isa.has_avx512_vnni():
        # One of them writes over the residual. AMX's tiles need none.
        assert second.cached_primitives() == (0 if isa.has_amx() else 2)


@pytest.mark.skipif(not isa.has_amx(), reason="AMX is not used")
@pytest.mark.parametrize(
    ("inputs", "post_ops", "result", "affine", "primitives"),
    [
        (40, ["relu"], [0.25, 9], [], 0),
        (40, ["gelu"], [0.25, 9], [], 0),
        (40, ["add", "clamp(-1.,2.)"], [0.25, 9], [2.0**-3, 77.0], 0),
        (40, ["add", "silu"], [0.25, 9], [0.0, 0.0], 0),
        (40, ["mul"], [], [0.0, 0.0], 0),
        (42, ["relu"], [0.25, 9], [], 1),  # rows that are no whole words
        (40, ["add"], [], [2.0**-3, 77.0], 1),  # numbers added to what stays float
        (40, ["relu", "add"], [0.25, 9], [2.0**-3, 77.0], 1),
    ],
)
def test_what_tiles_compute(inputs, post_ops, result, affine, primitives):
    """And what they leave to oneDNN."""
    x, (weight, scales), bias = numbers(37, inputs), weight_of(50, inputs), torch.randn(50)
    scales = scales / 64
    operands = [] if not affine else [numbers(37, 50) if affine[0] else torch.randn(37, 50)]
    y, context = run_linear(x, weight, scales, bias, post_ops, [STEP, 7], result, operands, affine)
    assert context.cached_primitives() == primitives
    assert context.fallback_reasons() == []
    expected = floats(x, [STEP, 7]) @ (weight.double() * scales[:, None].double()).t() + bias.double()
    other = floats(operands[0], affine) if affine and affine[0] else operands[0].double() if affine else None
    functions = {"relu": torch.relu, "gelu": F.gelu, "silu": F.silu, "clamp(-1.,2.)": lambda y: y.clamp(-1, 2)}
    for post_op in post_ops:
        expected = (
            expected + other
            if post_op == "add"
            else expected * other
            if post_op == "mul"
            else functions[post_op](expected)
        )
    if result:
        assert (y.double() - (expected / result[0] + result[1]).clamp(0, 255)).abs().max() <= 0.51
    else:
        torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)


def test_a_post_op_that_onednn_lacks_is_atens():
    x, (weight, scales) = numbers(5, 16), weight_of(8, 16)
    expected = rounded(F.elu(floats(x, [STEP, 7]) @ (weight.double() * scales[:, None].double()).t()), [0.25, 9])
    y, _ = run_linear(x, weight, scales, None, ["elu(1,1,1)"], [STEP, 7], [0.25, 9])
    assert (y.int() - expected.int()).abs().max() <= 1  # a tie may fall to either side


CONVOLUTIONS = {
    "pixels": {"weight": (24, 16, 1, 1)},
    "windows": {"weight": (24, 16, 3, 3), "padding": [1, 1, 1, 1]},
    "first layer": {"weight": (32, 3, 7, 7), "padding": [3, 3, 3, 3], "stride": [2, 2]},
    "ends differ": {"weight": (8, 5, 2, 3), "padding": [0, 1, 1, 2]},
    "groups": {"weight": (12, 3, 3, 3), "groups": 4, "padding": [1, 1, 1, 1]},
    "groups of 8": {"weight": (32, 8, 3, 3), "groups": 4},
    "depthwise": {"weight": (20, 1, 3, 3), "groups": 20, "padding": [1, 1, 1, 1], "stride": [2, 2]},
    "depthwise, 5x5": {"weight": (32, 1, 5, 5), "groups": 32, "padding": [2, 2, 2, 2]},
    "dilation": {"weight": (8, 8, 3, 3), "dilation": [2, 2], "padding": [2, 2, 2, 2]},
    "window is the image": {"weight": (8, 8, 12, 13)},
}


@pytest.mark.parametrize("zero_point", [0, 121])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_exact(name, zero_point):
    settings = {"padding": [0, 0, 0, 0], "stride": [1, 1], "dilation": [1, 1], "groups": 1, **CONVOLUTIONS[name]}
    weight, scales = weight_of(*settings["weight"])
    channels = weight.shape[1] * settings["groups"]
    affine = [STEP, float(zero_point)]
    top, left, bottom, right = settings["padding"]
    for batch, last, eager_layout in itertools.product((1, 3), (False, True), (False, True)):
        x = numbers(batch, channels, 12, 13)
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        geometry = (settings["stride"], settings["dilation"], settings["groups"])
        padded = F.pad(floats(x, affine), (left, right, top, bottom))
        factors = weight.double() * scales.double().view(-1, 1, 1, 1)
        expected = F.conv2d(padded, factors, None, geometry[0], 0, *geometry[1:])
        for result in ([], [2.0**-2, 17.0]):
            context = OPS.quantized_convolution_prepack(
                weight, scales, None, geometry[0], settings["padding"], *geometry[1:], [], affine, result, []
            )
            y = OPS.quantized_convolution_run(x, context, [], eager_layout)
            assert torch.equal(y if result else y.double(), rounded(expected, result) if result else expected)
            assert_computed_by_onednn(context)
            if eager_layout:
                in_floats = F.conv2d(padded.float(), weight.float(), None, geometry[0], 0, *geometry[1:])
                assert y.stride() == in_floats.stride()
            else:
                assert y.is_contiguous(memory_format=torch.channels_last)


WINDOWS = {  # weight, stride, padding, dilation, groups
    "3x3": ((70, 20, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "channels that fill no word": ((33, 7, 3, 5), (1, 1), (0, 2), (1, 1), 1),
    "first layer": ((32, 3, 7, 7), (2, 2), (3, 3), (1, 1), 1),
    "every third": ((16, 64, 2, 2), (3, 3), (1, 0), (1, 1), 1),
    "strides differ": ((16, 16, 5, 3), (3, 2), (2, 1), (1, 1), 1),
    "dilation": ((24, 40, 3, 3), (1, 1), (2, 3), (2, 3), 1),
    "dilation and stride": ((24, 5, 3, 3), (2, 2), (2, 1), (3, 2), 1),
    "every second pixel": ((40, 24, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    "many channels": ((130, 100, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "one line": ((16, 8, 1, 3), (1, 1), (0, 1), (1, 1), 1),
    "groups": ((8, 4, 3, 3), (1, 1), (1, 1), (1, 1), 2),
    "pixels with padding": ((8, 8, 1, 1), (1, 1), (0, 0), (1, 1), 1),
}
LEFT_TO_ONEDNN = ("groups", "every second pixel")


@pytest.mark.skipif(not isa.has_amx(), reason="AMX is not used")
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize(("batch", "threads"), [(1, 1), (1, 2), (3, 2), (4, 2)])
def test_windows_that_tiles_compute(name, batch, threads):
    """With what is added, what is bounded, padding of a call, and any number of threads; and what is left to oneDNN."""
    weight_sizes, stride, padding, dilation, groups = WINDOWS[name]
    weight, scales = weight_of(*weight_sizes)
    x = numbers(batch, weight_sizes[1] * groups, 14, 13).contiguous(memory_format=torch.channels_last)
    factors = weight.double() * scales.double().view(-1, 1, 1, 1)
    widths = [0, 0, 0, 0] if name != "pixels with padding" else [1, 1, 2, 0]
    padded = F.pad(floats(x, [STEP, 100]), widths)
    expected = F.conv2d(padded, factors, None, stride, padding, dilation, groups)
    other = numbers(*expected.shape).contiguous(memory_format=torch.channels_last)
    added, result = [2.0**-2, 77.0], [2.0**-1, 9.0]
    expected = rounded((expected + floats(other, added)).relu(), result)
    ends = list(padding) * 2
    context = OPS.quantized_convolution_prepack(
        weight, scales, None, stride, ends, dilation, groups, ["add", "relu"], [STEP, 100.0], result, added
    )
    with own_thread_count():
        torch.set_num_threads(threads)
        for _ in range(2):
            y = OPS.quantized_convolution_run(x, context, [other], True, widths)
            assert torch.equal(y, expected)
            assert y.is_contiguous(memory_format=torch.channels_last)
    assert context.cached_primitives() == (1 if name in LEFT_TO_ONEDNN else 0)
    assert context.fallback_reasons() == []


OTHER_RANKS = {
    "1-d": {"weight": (24, 16, 3), "padding": [1, 1]},
    "1-d, ends differ": {"weight": (8, 5, 4), "padding": [1, 2], "stride": [2]},
    "1-d, depthwise": {"weight": (20, 1, 5), "groups": 20, "padding": [2, 2]},
    "3-d": {"weight": (8, 6, 3, 3, 3), "padding": [1] * 6, "stride": [1, 2, 2]},
    "3-d, groups": {"weight": (8, 2, 2, 3, 1), "padding": [0, 1, 0] * 2, "groups": 4},
    "3-d, less deep than its padding": {"weight": (8, 1, 3, 3, 3), "padding": [5, 1, 1] * 2, "groups": 4},
    "transposed": {"weight": (16, 24, 3, 3), "padding": [1] * 4, "stride": [2, 2], "extra": [1, 0]},
    "transposed, groups": {"weight": (12, 5, 2, 2), "stride": [2, 2], "groups": 3},
    "transposed, dilation": {"weight": (6, 8, 3, 2), "dilation": [2, 1]},
    "transposed, 1-d": {"weight": (16, 8, 4), "padding": [1, 1], "stride": [2]},
    "transposed, 3-d": {"weight": (4, 8, 2, 2, 2), "stride": [2, 2, 2]},
}


@pytest.mark.parametrize("zero_point", [0, 121])
@pytest.mark.parametrize("name", OTHER_RANKS)
def test_convolutions_of_other_ranks_are_exact(name, zero_point):
    given = OTHER_RANKS[name]
    rank, transposed = len(given["weight"]) - 2, name.startswith("transposed")
    stride, dilation, extra = (
        given.get(key, [least] * rank) for key, least in (("stride", 1), ("dilation", 1), ("extra", 0))
    )
    padding, groups = given.get("padding", [0] * 2 * rank), given.get("groups", 1)
    weight = torch.randint(-127, 128, given["weight"], dtype=torch.int8)
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    scales = 2.0 ** -torch.randint(4, 9, (outputs,)).float()
    spread = scales.view(-1, *[1] * (rank + 1))
    if transposed:
        spread = scales.view(groups, -1).repeat_interleave(weight.shape[0] // groups, 0)
        spread = spread.view(*spread.shape, *[1] * rank)
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    affine, factors = [STEP, float(zero_point)], weight.double() * spread.double()
    for shape in ((2, channels, *(5, 8, 7)[:rank]), (channels, *(4, 6, 5)[:rank])):
        x = numbers(*shape)
        if transposed:
            convolve = getattr(F, f"conv_transpose{rank}d")
            expected = convolve(floats(x, affine), factors, None, stride, padding[:rank], extra, groups, dilation)
        else:
            widths = [w for pair in zip(reversed(padding[:rank]), reversed(padding[rank:])) for w in pair]
            padded = F.pad(floats(x, affine), widths)
            expected = getattr(F, f"conv{rank}d")(padded, factors, None, stride, 0, dilation, groups)
        for result in ([], [2.0**-2, 17.0]):
            arguments = (weight, scales, None, stride, padding, dilation, groups, [], affine, result, [])
            context = OPS.quantized_convolution_prepack(*arguments, transposed, extra)
            state, type_name = context.__getstate__()
            again = torch.ScriptObject.__new__(torch.ScriptObject)
            again.__setstate__((state, type_name))
            assert again.describe() == context.describe()
            for eager_layout, made in ((True, context), (False, again)):
                y = OPS.quantized_convolution_run(x, made, [], eager_layout)
                assert torch.equal(y if result else y.double(), rounded(expected, result) if result else expected)
            if name in ("1-d", "3-d", "transposed, 1-d"):
                assert_computed_by_onednn(context)


def test_dequantize_undoes_quantize():
    x = numbers(3, 5, 4, 6).contiguous(memory_format=torch.channels_last)
    y = OPS.dequantize(x, STEP, 77)
    assert torch.equal(y.double(), floats(x, [STEP, 77]))
    assert y.stride() == x.stride()
    assert torch.equal(OPS.quantize(y, STEP, 77), x)


def test_some_channels_of_an_image_stay_channels_last():
    """What a convolution makes of it has the layout that eager's has."""
    x = torch.randn(2, 8, 5, 6).contiguous(memory_format=torch.channels_last)[:, 2:5]
    y = OPS.quantize(x, STEP, 77)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(y, OPS.quantize(x.contiguous(), STEP, 77))


def test_threads_give_equal_results():
    x, (weight, scales) = numbers(40, 640), weight_of(70, 640)
    results = []
    with own_thread_count():
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(run_linear(x, weight, scales, None, x_affine=[STEP, 9])[0])
    assert all(torch.equal(y, results[0]) for y in results)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantize_is_that_of_aten():
    for shape in [(), (0, 3), (7,), (3, 5), (2, 3, 4, 5), (1, 70000), (65537,)]:
        x = torch.randn(shape) * 3
        for scale, zero_point in [(0.03, 0), (0.02, 113), (0.001, 255)]:
            expected = torch.quantize_per_tensor(x, scale, zero_point, torch.quint8).int_repr()
            y = OPS.quantize(x, scale, zero_point)
            assert (y.int() - expected.int()).abs().max().item() <= 1 if x.numel() else y.shape == x.shape
            assert (y != expected).float().mean().item() < 0.01 if x.numel() else True


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x.permute(3, 1, 0, 2),
        lambda x: x[:, 1:, ::2],
        lambda x: x[:, :1].expand(-1, 5, -1, -1),
        lambda x: x.contiguous(memory_format=torch.channels_last)[:, 1:4],
        lambda x: x.contiguous(memory_format=torch.channels_last)[:1, 1:4],
        lambda x: x.contiguous(memory_format=torch.channels_last)[:, 1:4, 2:5],
        lambda x: x.contiguous(memory_format=torch.channels_last)[:, 1:4, :, ::2],
    ],
)
def test_quantize_of_other_layouts(make):
    x = make(torch.randn(4, 6, 8, 7))
    y = OPS.quantize(x, 0.02, 120)
    assert torch.equal(y, OPS.quantize(x.contiguous(), 0.02, 120))
    if x.is_contiguous(memory_format=torch.channels_last) or not x.is_contiguous():
        assert y.stride() == torch.empty_like(x).stride() or not torch.ops.aten.is_non_overlapping_and_dense(x)


def test_quantize_of_what_is_not_a_number():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30, -1e30])
    assert OPS.quantize(x, 0.1, 128).tolist() == [0, 255, 0, 255, 0]


def test_quantize_with_factors():
    x, factors = torch.randn(3, 5, 37), torch.rand(37) + 0.5
    assert torch.equal(OPS.quantize(x, 2.0**-5, 128, factors), OPS.quantize(x * factors, 2.0**-5, 128))


def test_pooling_of_numbers():
    for last in (False, True):
        x = numbers(2, 19, 9, 10)
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        for window, stride, padding, dilation, ceil_mode in [
            (3, 2, 1, 1, False),
            (2, 2, 0, 1, True),
            (3, 1, 1, 2, False),
        ]:
            arguments = ([window] * 2, [stride] * 2, [padding] * 2, [dilation] * 2, ceil_mode)
            y = OPS.max_pool2d(x, *arguments)
            assert torch.equal(y.float(), F.max_pool2d(x.float(), *arguments))


BAD = [
    ("a scale", lambda w, s: OPS.quantized_linear_prepack(w, s, None, [], [-1.0, 0.0], [], []), "positive scale"),
    ("a zero point", lambda w, s: OPS.quantized_linear_prepack(w, s, None, [], [1.0, 300.0], [], []), "zero point"),
    ("no input", lambda w, s: OPS.quantized_linear_prepack(w, s, None, [], [], [], []), "of the input"),
    (
        "operands",
        lambda w, s: OPS.quantized_linear_prepack(w, s, None, ["add"], [1.0, 0.0], [], []),
        "each of 1 operands",
    ),
    ("scales", lambda w, s: OPS.quantized_linear_prepack(w, s[:2], None, [], [1.0, 0.0], [], []), "weight_scales"),
    (
        "floats",
        lambda w, s: OPS.quantized_linear_prepack(w.float(), s, None, [], [1.0, 0.0], [], []),
        "weight to be a plain CPU tensor of int8",
    ),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad[0])
def test_what_can_not_be_right_is_refused(bad):
    weight, scales = weight_of(4, 6)
    with pytest.raises(RuntimeError, match=bad[2]):
        bad[1](weight, scales)


def test_inputs_that_no_layer_takes():
    context = OPS.quantized_linear_prepack(*weight_of(4, 6), None, [], [1.0, 0.0], [], [])
    with pytest.raises(RuntimeError, match="uint8 CPU input"):
        OPS.quantized_linear_run(torch.randn(2, 6), context, [], True)
    with pytest.raises(RuntimeError, match="last dimension 6"):
        OPS.quantized_linear_run(numbers(2, 5), context, [], True)
    with pytest.raises(RuntimeError, match="last dimension 6"):
        OPS.quantized_linear_run(numbers(1)[0], context, [], True)
    with pytest.raises(RuntimeError, match="expected a uint8 CPU tensor"):
        OPS.dequantize(numbers(2, 6).to(torch.int8), STEP, 77)
    with pytest.raises(RuntimeError, match="a float32 factor for each element"):
        OPS.quantize(torch.randn(2, 6), STEP, 77, torch.rand(5))
    adds_numbers = OPS.quantized_linear_prepack(*weight_of(4, 6), None, ["add"], [1.0, 0.0], [], [STEP, 3.0])
    with pytest.raises(RuntimeError, match="expected a uint8 operand 0"):
        OPS.quantized_linear_run(numbers(2, 6), adds_numbers, [torch.randn(2, 4)], True)


def test_operands_of_floats_may_be_of_another_dtype_or_require_a_gradient():
    x, weight, scales, none = numbers(2, 6), *weight_of(4, 6), [0.0, 0.0]
    plain, _ = run_linear(x, weight, scales, None)
    operand = torch.randn(2, 4, dtype=torch.double)
    y, _ = run_linear(x, weight, scales, None, ["add"], operands=[operand], affines=none)
    assert_same(y, plain + operand)
    operand = torch.randn(2, 4, requires_grad=True)
    y, _ = run_linear(x, weight, scales, None, ["add"], operands=[operand], affines=none)
    y.sum().backward()
    assert torch.equal(operand.grad, torch.ones(2, 4))


def test_a_state_comes_back_and_is_checked():
    weight, scales = weight_of(8, 6, 1, 1)
    context = OPS.quantized_convolution_prepack(
        weight, scales, torch.randn(8), [1, 1], [0] * 4, [1, 1], 1, ["relu"], [STEP, 5.0], [0.5, 3.0], []
    )
    state, name = context.__getstate__()
    x = numbers(2, 6, 5, 5)

    def restored(changed):
        other = torch.ScriptObject.__new__(torch.ScriptObject)
        other.__setstate__((changed, name))
        return other

    again = restored(state)
    assert again.describe() == context.describe()
    run = OPS.quantized_convolution_run
    assert torch.equal(run(x, again, [], True), run(x, context, [], True))
    version, tensors, integers, post_ops = state
    for key, bad in [
        ("weight", weight.float()),
        ("weight", weight[:0]),
        ("weight_scales", scales[:3]),
        ("affines", torch.tensor([0.0, 0.0, 0.0, 0.0], dtype=torch.double)),
        ("affines", torch.tensor([1.0, float("nan"), 0.0, 0.0], dtype=torch.double)),
        ("affines", torch.tensor([1.0], dtype=torch.double)),
    ]:
        with pytest.raises(RuntimeError, match="damaged|zero point"):
            restored((version, {**tensors, key: bad}, integers, post_ops))
    for key, bad in [("stride", [0, 1]), ("padding_end", [-1, 0]), ("groups", [3]), ("dilation", [1])]:
        with pytest.raises(RuntimeError, match="damaged|file that it was loaded from"):
            restored((version, tensors, {**integers, key: bad}, post_ops))
    with pytest.raises(RuntimeError, match="newer ipex"):
        restored((99, tensors, integers, post_ops))


@pytest.mark.parametrize(
    "change", [lambda x: x.zero_(), lambda x: x.untyped_storage().resize_(0)], ids=["write", "free"]
)
@pytest.mark.parametrize("which", [0, 1, 2], ids=["weight", "scales", "bias"])
def test_what_the_caller_does_with_the_weights_later_changes_nothing(which, change):
    input_of = [
        (torch.randint(-127, 127, (8, 4), dtype=torch.int8), torch.randint(0, 255, (3, 4), dtype=torch.uint8)),
        (
            torch.randint(-127, 127, (8, 4, 3, 3), dtype=torch.int8),
            torch.randint(0, 255, (2, 4, 6, 6), dtype=torch.uint8),
        ),
    ]
    for weight, x in input_of:
        given = [weight, torch.rand(8), torch.randn(8)]
        if weight.dim() == 2:
            context = torch.ops.ipex.quantized_linear_prepack(*given, [], [0.1, 3.0], [], [])
            run = torch.ops.ipex.quantized_linear_run
        else:
            geometry = ([1, 1], [1, 1, 1, 1], [1, 1], 1)
            context = torch.ops.ipex.quantized_convolution_prepack(*given, *geometry, [], [0.1, 3.0], [], [])
            run = torch.ops.ipex.quantized_convolution_run
        before = run(x, context, [], True)
        change(given[which])
        assert torch.equal(run(x, context, [], True), before)


def test_sums_that_do_not_fit_32_bits_are_those_of_floats():
    depth = 70_000
    weight, x = torch.full((4, depth), 127, dtype=torch.int8), torch.full((2, depth), 255, dtype=torch.uint8)
    context = torch.ops.ipex.quantized_linear_prepack(weight, torch.full((4,), 1e-6), None, [], [1.0, 0.0], [], [])
    y = torch.ops.ipex.quantized_linear_run(x, context, [], True)
    torch.testing.assert_close(y, torch.full((2, 4), depth * 127 * 255e-6), rtol=1e-5, atol=0)
