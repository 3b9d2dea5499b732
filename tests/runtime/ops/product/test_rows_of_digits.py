"""Linears of codes that may round the rows they are given to 16 or 8 bits: `row_bits`."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

import ipex
from ipex.quantization import WeightOnlyLinear
from support import HAS_INT8, assert_same, own_thread_count

HAVE_DIGITS = HAS_INT8
LARGEST = {8: 127.0, 16: 127.0 * 257}
KINDS = pytest.mark.parametrize(
    ("bits", "group_size", "has_offsets"),
    [(4, 32, True), (4, 32, False), (4, 192, False), (8, 32, False), (8, 64, True), (8, 192, False)],
)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def linear(bits: int, group_size: int, has_offsets: bool, inputs: int = 192, outputs: int = 70) -> WeightOnlyLinear:
    half = 2 ** (bits - 1)
    codes = torch.randint(-half, half, (outputs, inputs), dtype=torch.int8)
    groups = outputs, inputs // group_size
    offsets = torch.rand(groups) * half if has_offsets else None
    scales = torch.rand(groups) + 0.5
    return WeightOnlyLinear(codes, scales, offsets, bias=torch.randn(outputs), bits=bits, group_size=group_size)


def packed(module: WeightOnlyLinear, row_bits: int, *post_ops: str) -> torch.ScriptObject:
    own = (module.codes, module.scales, module.offsets, module.order, module.bias)
    prepack = torch.ops.ipex.weight_only_linear_prepack.codes
    return prepack(*own, list(post_ops), module.in_features, module.group_size, row_bits)


def run(context: torch.ScriptObject, x: Tensor, *operands: Tensor) -> Tensor:
    return torch.ops.ipex.weight_only_linear_run(x, context, list(operands), True)


def rounded(x: Tensor, row_bits: int, group_size: int) -> Tensor:
    """What the kernels multiply. A scale of a whole row stands for groups of 128 of its inputs."""
    if row_bits == 24 or not HAVE_DIGITS:
        return x
    groups = x.split(min(group_size, 128) if group_size == x.shape[-1] else group_size, -1)
    scales = [group.abs().amax(-1, keepdim=True) / LARGEST[row_bits] for group in groups]
    return torch.cat([(group * (1 / scale)).round() * scale for group, scale in zip(groups, scales)], -1)


@KINDS
@pytest.mark.parametrize("row_bits", [24, 16, 8])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 13, 65, 70])
def test_rows_are_rounded_in_groups(bits, group_size, has_offsets, row_bits, rows):
    module, x = linear(bits, group_size, has_offsets), torch.randn(rows, 192)
    assert_same(run(packed(module, row_bits), x), module(rounded(x, row_bits, group_size)))


@KINDS
@pytest.mark.parametrize("row_bits", [24, 16, 8])
def test_a_row_does_not_depend_on_others(bits, group_size, has_offsets, row_bits):
    context, x = packed(linear(bits, group_size, has_offsets), row_bits), torch.randn(27, 192)
    clean = run(context, x)
    # Without digits, few rows meet codes of 4 bits in another order than many.
    tolerance = 0 if HAVE_DIGITS or bits == 8 else 1e-5
    for row in range(27):
        assert_same(run(context, x[row : row + 1])[0], clean[row], tolerance)
    with own_thread_count():
        torch.set_num_threads(3)
        assert torch.equal(run(context, x), clean)
    x[3, 5], x[8, 190] = float("nan"), float("inf")
    y = run(context, x)
    assert y[3].isnan().all()
    assert not y[8].isfinite().any()
    rest = [row for row in range(27) if row not in (3, 8)]
    assert torch.equal(y[rest], clean[rest])


@pytest.mark.parametrize("row_bits", [24, 16, 8])
def test_rows_without_digits_add_what_lies_in_the_memory_of_the_result(row_bits):
    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear(4, 32, True, inputs=64, outputs=64)
            self.linear.row_bits = row_bits

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) + torch.relu(x)

    model, x = Sum().eval(), torch.randn(4, 64)
    x[1] *= 1e-35  # below the range of digits
    optimized = ipex.jit_optimize(model, x)
    y = optimized(x)
    expected = model.linear(torch.cat([rounded(x[:1], row_bits, 32), x[1:2], rounded(x[2:], row_bits, 32)])) + x.relu()
    assert_same(y, expected)
    assert_same(y[1], model(x)[1])


def test_inputs_in_another_order():
    module, x = linear(4, 32, True), torch.randn(8, 192)
    module.order = torch.randperm(192)
    in_order = copy.deepcopy(module)
    in_order.order = None
    assert_same(run(packed(module, 8), x), run(packed(in_order, 8), x[:, module.order]))


def test_a_model(tmp_path):
    module, x = linear(4, 32, True).eval(), torch.randn(20, 192)
    module.row_bits = 8
    assert "row_bits=8" in repr(module)
    ipex.jit_optimize(module, x).save(tmp_path / "model.pt")
    loaded = ipex.load(tmp_path / "model.pt")
    assert_same(loaded(x), module(rounded(x, 8, 32)))
    optimized = ipex.optimize(module)
    assert torch.equal(optimized(x), loaded(x))
    optimized.row_bits = 24
    assert_same(optimized(x), module(x))
    assert copy.deepcopy(optimized).row_bits == 24


def test_what_it_says_and_what_a_damaged_file_says():
    context = packed(linear(4, 32, True), 16)
    assert "rows=16 bits" in context.describe()
    (version, tensors, integers, post_ops), class_name = context.__getstate__()
    assert integers["row_bits"] == [16]
    for bits in (4, 12, 32):
        made = torch.ScriptObject.__new__(torch.ScriptObject)
        with pytest.raises(RuntimeError, match=f"row_bits of 8, 16 or 24, got {bits}"):
            made.__setstate__(((version, tensors, {**integers, "row_bits": [bits]}, post_ops), class_name))
    with pytest.raises(RuntimeError, match="row_bits of 8, 16 or 24, got 4"):
        packed(linear(4, 32, True), 4)
