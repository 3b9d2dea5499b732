"""Linears in int8: integers are exact on every CPU, so that plain tensors give the same bits."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_same, fallback_reasons, own_thread_count

SMALLEST = torch.finfo(torch.float32).tiny


def linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias).eval()


def packed(model: nn.Linear, post_ops: tuple[str, ...] = ()) -> torch.ScriptObject:
    return torch.ops.ipex.dynamic_linear_prepack(model.weight, model.bias, list(post_ops))


def run(context: torch.ScriptObject, x: Tensor, *operands: Tensor) -> Tensor:
    return torch.ops.ipex.dynamic_linear_run(x, context, list(operands), True)


def rounded_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, and a scale for each output."""
    scale = (weight.abs().amax(1) / 127).clamp_min(SMALLEST)
    return (weight / scale[:, None]).round().clamp(-127, 127), scale


def rounded_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, and a scale and a zero for each row."""
    low, high = x.amin(-1, keepdim=True).clamp_max(0), x.amax(-1, keepdim=True).clamp_min(0)
    scale = (high / 255 - low / 255).clamp_min(SMALLEST)
    inverse = 1 / scale
    zero = (-low * inverse).round().clamp_max(255)
    return ((x * inverse).round() + zero).clamp(0, 255), scale, zero


def expected(model: nn.Linear, x: Tensor) -> Tensor:
    """The same arithmetic in plain tensors: float64 holds the integers."""
    codes, scale = rounded_weight(model.weight)
    rows, row_scale, zero = rounded_rows(x)
    sums = (rows - zero).double() @ codes.double().t()
    y = sums.float() * (row_scale * scale)
    return y if model.bias is None else y + model.bias


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 13, 40, 129])
@pytest.mark.parametrize(
    ("inputs", "outputs"), [(1, 1), (3, 17), (64, 64), (65, 63), (127, 130), (768, 200), (1030, 33), (4100, 70)]
)
def test_the_same_bits_as_plain_tensors(inputs, outputs, rows):
    model, x = linear(inputs, outputs, bias=False), torch.randn(rows, inputs) * 3 + 1
    context = packed(model)
    assert torch.equal(run(context, x), expected(model, x))
    assert context.fallback_reasons() == []


@pytest.mark.parametrize("rows", [1, 9])
def test_the_bias_is_added_in_float32(rows):
    model, x = linear(100, 90), torch.randn(rows, 100)
    assert torch.equal(run(packed(model), x), expected(model, x))


def test_the_largest_sums():
    """All products as large as they can be: 16 bits would not hold two of them."""
    inputs = 1 << 16
    model = linear(inputs, 3, bias=False)
    model.weight.fill_(1)
    model.weight[1].fill_(-1)
    x = torch.ones(8, inputs)
    x[1], x[2, ::2] = -1, -1
    assert torch.equal(run(packed(model), x), expected(model, x))
    with pytest.raises(RuntimeError, match="at most 65536 inputs in order, got int8 and 65537"):
        packed(linear(inputs + 1, 3))


@pytest.mark.parametrize("rows", [3, 30])
def test_it_is_near_float32(rows):
    model, x = linear(512, 256), torch.randn(rows, 512)
    error = (run(packed(model), x) - model(x)).norm() / model(x).norm()
    assert 1e-4 < error < 0.02


def test_rows_do_not_depend_on_each_other():
    model, x = linear(200, 100), torch.randn(50, 200)
    context = packed(model)
    y = run(context, x)
    for first, last in ((0, 1), (7, 9), (20, 49)):
        assert torch.equal(run(context, x[first:last]), y[first:last])
    x[3] *= 1e6
    assert torch.equal(run(context, x)[4:], y[4:])


@pytest.mark.parametrize("rows", [4, 20])
def test_a_row_that_is_not_finite_is_nan(rows):
    model, x = linear(70, 50), torch.randn(rows, 70)
    x[1, 69], x[2, 3], x[3, 0] = float("nan"), float("inf"), -float("inf")
    y = run(packed(model), x)
    assert y[1:4].isnan().all()
    assert torch.equal(y[0], run(packed(model), x[:1])[0])
    assert y[4:].isfinite().all()


def test_rows_of_extreme_numbers():
    model = linear(40, 30, bias=False)
    x = torch.randn(6, 40)
    largest = torch.finfo(torch.float32).max
    x[0] = 0
    x[1] = torch.where(x[1] > 0, largest, -largest)
    x[2] *= 1e-40
    x[3] = x[3].abs()
    x[4] = -x[4].abs()
    y = run(packed(model), x)
    assert (y[0] == 0).all()
    assert torch.equal(y, expected(model, x))


def test_a_weight_with_rows_of_zeros():
    model, x = linear(40, 30), torch.randn(6, 40)
    model.weight[3] = 0
    assert torch.equal(run(packed(model), x)[:, 3], model.bias[3].expand(6))


@pytest.mark.parametrize("sizes", [(40,), (1, 40), (2, 3, 40), (2, 1, 3, 40)])
def test_shapes(sizes):
    model, x = linear(40, 30, bias=False), torch.randn(sizes)
    assert_same(run(packed(model), x), expected(model, x), tolerance=0)


def test_nothing_to_compute():
    model = linear(40, 30)
    assert run(packed(model), torch.randn(0, 40)).shape == (0, 30)
    with pytest.raises(RuntimeError, match=r"last dimension 40 \(weight is \[30, 40\]\), got \[2, 41\]"):
        run(packed(model), torch.randn(2, 41))


def test_rows_that_lie_apart():
    model, wide = linear(40, 30, bias=False), torch.randn(9, 100)
    context = packed(model)
    for x in (wide[:, 3:43], wide[::2, :40], torch.randn(40, 9).t(), torch.randn(1, 40).expand(7, 40)):
        assert torch.equal(run(context, x), expected(model, x))


@pytest.mark.parametrize("rows", [2, 30])
def test_post_ops(rows):
    model, x, other = linear(70, 90, bias=False), torch.randn(rows, 70), torch.randn(rows, 90)
    y = expected(model, x)
    assert torch.equal(run(packed(model, ("relu",)), x), y.relu())
    assert_same(run(packed(model, ("silu",)), x), F.silu(y))
    assert torch.equal(run(packed(model, ("add", "relu")), x, other), (y + other).relu())
    per_column = torch.randn(90)
    assert torch.equal(run(packed(model, ("mul",)), x, per_column), y * per_column)
    # No kernel has it.
    context = packed(model, ("relu", "pow(2.5)"))
    assert_same(run(context, x), y.relu().pow(2.5))
    assert context.fallback_reasons() == ["post-op pow: oneDNN does not give aten's result"]


def test_neither_calls_nor_threads_change_a_bit():
    model, x = linear(600, 500), torch.randn(300, 600)
    context = packed(model)
    y = run(context, x)
    with own_thread_count():
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            for rows in (300, 1, 5):
                assert all(torch.equal(run(context, x[:rows]), y[:rows]) for _ in range(3))


def test_gradients_go_through_the_rounded_weight():
    model, x = linear(40, 30), torch.randn(5, 40)
    codes, scale = rounded_weight(model.weight)
    with torch.enable_grad():
        x.requires_grad_()
        context = packed(model)
        y = run(context, x)
        y.sum().backward()
    assert_same(y.detach(), F.linear(x.detach(), codes * scale[:, None], model.bias))
    assert_same(x.grad, (codes * scale[:, None]).sum(0).expand(5, 40).contiguous())
    assert context.fallback_reasons() == ["the input requires a gradient"]


def test_what_a_file_holds():
    model, x = linear(37, 29), torch.randn(5, 37)
    context = packed(model, ("relu",))
    (version, tensors, integers, post_ops), _ = context.__getstate__()
    codes, scale = rounded_weight(model.weight)
    assert (version, integers, post_ops) == (1, {"inputs": [37], "group_size": [37]}, ["relu"])
    assert tensors["codes"].dtype == torch.int8
    assert torch.equal(tensors["codes"], codes.to(torch.int8))
    assert torch.equal(tensors["scales"], scale[:, None])
    assert set(tensors) == {"codes", "scales", "bias"}
    assert torch.equal(run(copy.deepcopy(context), x), run(context, x))


def test_the_description():
    text = packed(linear(37, 29), ("relu",)).describe()
    assert text.startswith(
        "ipex::dynamic_linear_run(weight=[29, 37], weight_format=int8, group=row, symmetric=1, scales="
    )
    assert text.endswith("rows=uint8, quantised in each call, bias=1, post_ops=relu)")


def changed(**changes: object) -> tuple:
    (version, tensors, integers, post_ops), class_name = packed(linear(37, 29)).__getstate__()
    tensors = {**tensors, **{k: v for k, v in changes.items() if k in ("codes", "scales", "offsets", "bias", "order")}}
    integers = {**integers, **{k: v for k, v in changes.items() if k in ("inputs", "group_size")}}
    return (version, {k: v for k, v in tensors.items() if v is not None}, integers, post_ops), class_name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codes": None}, "weight of one of int8"),
        ({"codes": torch.zeros(29, 36, dtype=torch.int8)}, "int8 \\[any, 37\\], got int8 \\[29, 36\\]"),
        ({"codes": torch.zeros(0, 37, dtype=torch.int8)}, "int8 \\[any, 37\\], got int8 \\[0, 37\\]"),
        ({"codes": torch.zeros(37, dtype=torch.int8)}, "int8 \\[any, 37\\], got int8 \\[37\\]"),
        ({"codes": torch.zeros(29, 37)}, "weight of one of int8"),
        ({"codes": torch.zeros(29, 19, dtype=torch.uint8)}, "expected int8 with a scale for each output"),
        (
            {"scales": torch.zeros(28, 1)},
            "scales to be a plain CPU tensor of float32 \\[29, 1\\], got float32 \\[28, 1\\]",
        ),
        ({"scales": torch.zeros(29, 1).double()}, "float32 \\[29, 1\\], got float64"),
        ({"scales": None}, "float32 \\[29, 1\\], got none"),
        ({"offsets": torch.zeros(29, 1)}, "expected int8 with a scale for each output"),
        ({"order": torch.arange(37)}, "inputs in order, got int8"),
        ({"bias": torch.zeros(28)}, "float32 \\[29\\], got float32 \\[28\\]"),
        ({"inputs": [0]}, "1 integers of at least 1 in 'inputs'"),
        ({"inputs": [1 << 62]}, "in groups of 37|weight of one of int8"),
        ({"group_size": [8]}, "float32 \\[29, 5\\], got"),
        ({"group_size": [38]}, "multiple of 8 or of all"),
        ({"group_size": [7]}, "multiple of 8 or of all"),
    ],
)
def test_damaged_states(changes, message):
    state, class_name = changed(**changes)
    context = torch.ScriptObject.__new__(torch.ScriptObject)
    with pytest.raises(RuntimeError, match=message):
        context.__setstate__((state, class_name))


def test_every_tensor_is_measured():
    (version, tensors, *rest), class_name = packed(linear(37, 29)).__getstate__()
    for damaged in tensors:
        copies = {key: tensor.clone() for key, tensor in tensors.items()}
        copies[damaged].untyped_storage().resize_(copies[damaged].nbytes - 1)
        context = torch.ScriptObject.__new__(torch.ScriptObject)
        with pytest.raises(RuntimeError, match=f"expected a tensor '{damaged}' that lies inside of its storage"):
            context.__setstate__(((version, copies, *rest), class_name))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.randn(3), "2-D CPU weight of float32 to quantise"),
        (torch.randn(0, 3), "non-empty, finite"),
        (torch.randn(3, 3).double(), "of float32"),
        (torch.full((3, 3), float("inf")), "finite"),
    ],
)
def test_what_can_not_be_packed(weight, message):
    with pytest.raises(RuntimeError, match=message):
        torch.ops.ipex.dynamic_linear_prepack(weight, None, [])


def test_a_model(tmp_path):
    """From the front door: saved, loaded, and the same."""
    model, x = nn.Sequential(linear(200, 300), nn.ReLU(), linear(300, 100)).eval(), torch.randn(20, 200)
    quantized = ipex.quantization.dynamic(model, x)
    y = expected(model[2], expected(model[0], x).relu())
    assert_same(quantized(x), y, tolerance=1e-3)  # a bias that is rounded otherwise may change a code of the next layer
    quantized.save(tmp_path / "model.pt")
    loaded = ipex.load(tmp_path / "model.pt")
    assert torch.equal(loaded(x), quantized(x))
    assert fallback_reasons(loaded) == []
    assert (tmp_path / "model.pt").stat().st_size < 100_000 + 60_000
