"""Elementwise ops that are summed in the same pass: eager's values, and what is left to two passes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ipex  # noqa: F401
from support import assert_same, own_thread_count, why_aten

OPS = torch.ops.ipex


def ours_sum(inputs: list[Tensor], steps: list[str], dims: list[int], keepdim: bool) -> Tensor:
    return OPS.elementwise(inputs, steps, dims, keepdim)


def ours_mean(inputs: list[Tensor], steps: list[str], dims: list[int], keepdim: bool) -> Tensor:
    return OPS.elementwise(inputs, steps, dims, keepdim, is_mean=True)


EACH = {"sum": (ours_sum, torch.sum), "mean": (ours_mean, torch.mean)}
each_op = pytest.mark.parametrize(("ours", "atens"), EACH.values(), ids=EACH)
PRODUCT = ["mul 0 1"]


def image(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


# Two tensors that are multiplied, and the dimensions that are summed. c is the size of what matters for blocks.
CASES = {
    "rows": (lambda c: (torch.randn(5, 7, c), torch.randn(5, 7, c)), [-1]),
    "rows that share one": (lambda c: (torch.randn(5, 7, c), torch.randn(c)), [2]),
    "rows of a broadcast": (lambda c: (torch.randn(3, 4, 1, c), torch.randn(3, 1, 6, c)), [-1]),
    "columns of a broadcast": (lambda c: (torch.randn(3, 9, 1), torch.randn(3, 9, c)), [-2]),
    "columns": (lambda c: (torch.randn(2, 90, c), torch.randn(2, 90, c)), [1]),
    "one weight for each column": (lambda c: (torch.randn(2, 70, c), torch.randn(c)), [1]),
    "the batch": (lambda c: (torch.randn(4, 3, c), torch.randn(4, 1, 1)), [0]),
    "an image": (lambda c: (image(2, c, 14, 13), torch.randn(2, c, 1, 1)), [2, 3]),
    "an image in planes": (lambda c: (torch.randn(2, c, 9, 5), torch.randn(9, 5)), [2, 3]),
    "channels of pixels": (lambda c: (image(2, c, 5, 6), torch.randn(c, 1, 1)), [1]),
    "channels of planes": (lambda c: (torch.randn(2, c, 5, 6), torch.randn(c, 1, 1)), [1]),
    "branches of planes": (lambda c: (torch.randn(2, 3, c, 5, 6), torch.randn(2, 3, c, 1, 1)), [1]),
    "branches of pixels": (lambda c: (image(2, 3 * c, 5, 6).unflatten(1, (3, c)), torch.randn(2, 3, c, 1, 1)), [1]),
    "one between": (lambda c: (torch.randn(2, 8, 5, c), torch.randn(5, 1)), [1, 3]),
    "two apart": (lambda c: (torch.randn(4, 8, 5, c), torch.randn(5, 1)), [0, 2]),
    "kept in another order": (lambda c: (torch.randn(2, 8, 5, c).permute(0, 3, 1, 2), torch.randn(5)), [2]),
    "other orders": (lambda c: (torch.randn(6, 7, c), torch.randn(c, 7, 6).permute(2, 1, 0)), [1]),
    "turned": (lambda c: (torch.randn(c, 6).mT, torch.randn(6, c)), [1]),
    "one of each": (lambda c: (torch.randn(5, c, 1), torch.randn(5, 1, 1)), [2]),
    "pieces of rows": (lambda c: (torch.randn(4, 9, 2 * c)[..., c:], torch.randn(4, 9, c)), [-1]),
    "the same for all": (lambda c: (torch.randn(c).expand(5, 6, c), torch.randn(6, 1)), [1]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("size", [2, 17, 64, 200, 1500])
@pytest.mark.parametrize("keepdim", [False, True])
@each_op
def test_matches_eager(case, size, keepdim, ours, atens):
    make, dims = case
    a, b = make(size)
    before = a.clone(), b.clone()
    with own_thread_count():
        torch.set_num_threads(1)
        assert why_aten(lambda: ours([a, b], PRODUCT, dims, keepdim)) is None
        assert_same(ours([a, b], PRODUCT, dims, keepdim), atens(a * b, dims, keepdim))
    assert_same(ours([a, b], PRODUCT, dims, keepdim), atens(a * b, dims, keepdim))
    assert torch.equal(a, before[0])
    assert torch.equal(b, before[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dims", [[-1], [1]])
@each_op
def test_numbers_of_16_bits_are_rounded_as_in_eager(dtype, dims, ours, atens):
    """The order of additions may tip the last rounding. Terms that are not rounded would often."""
    a, b = torch.randn(500, 3, 3).to(dtype), torch.randn(3).to(dtype)
    steps = ["mul 0 1", "add_number(0.3) 2"]
    assert why_aten(lambda: ours([a, b], steps, dims, False)) is None
    actual, expected = ours([a, b], steps, dims, False), atens(a * b + 0.3, dims)
    assert_same(actual, expected, torch.finfo(dtype).eps)
    assert (actual == expected).float().mean() > 0.99


@each_op
def test_several_steps_of_several_sizes(ours, atens):
    q, k, decay = torch.randn(3, 8, 1, 40), torch.randn(3, 1, 8, 40), torch.randn(3, 8, 8, 40)
    gate = torch.randn(3, 8, 1, 1)
    steps = ["sigmoid 3", "mul 0 4", "mul 5 1", "exp 2", "mul 6 7"]
    expected = atens(q * torch.sigmoid(gate) * k * decay.exp(), [-1])
    assert why_aten(lambda: ours([q, k, decay, gate], steps, [-1], False)) is None
    assert_same(ours([q, k, decay, gate], steps, [-1], False), expected)


@each_op
def test_what_a_mask_chooses(ours, atens):
    x, mask = torch.randn(4, 33, 20), torch.rand(4, 33, 1) < 0.5
    steps = ["masked_fill(0.0) 0 1"]
    assert why_aten(lambda: ours([x, mask], steps, [1], False)) is None
    assert_same(ours([x, mask], steps, [1], False), atens(x.masked_fill(mask, 0.0), [1]))


@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf, 1e30])
@each_op
def test_nan_infinity_and_what_overflows(special, ours, atens):
    x = torch.randn(3, 40, 24)
    x[0, 5, 3] = special
    for dims in ([1], [2], [0, 1]):
        assert_same(ours([x], ["square 0"], dims, True), atens(x * x, dims, True))


def test_a_long_sum_is_as_exact_as_atens():
    for x in (torch.rand(1, 40, 30000).mT, torch.rand(1, 30000, 40), torch.rand(1, 40, 30000)):
        dim = 1 if x.size(1) == 30000 else 2
        exact = x.double().square().sum(dim)
        error = (ours_sum([x], ["square 0"], [dim], False) - exact).abs().max()
        assert error <= 2 * (x.square().sum(dim) - exact).abs().max() + 1e-6 * exact.max()


FEW = "it has many inputs and steps, or fewer sums than there are threads"
IN_TWO_PASSES = {
    "integers": ([torch.arange(12).view(3, 4)], ["square 0"], "its inputs are of another dtype"),
    "doubles": ([torch.randn(3, 4, dtype=torch.double)], ["square 0"], "its inputs are of another dtype"),
    "nothing": ([torch.randn(0, 4)], ["square 0"], "an input is empty, or has many dimensions"),
    "a gradient": ([torch.randn(3, 4, requires_grad=True)], ["square 0"], "an input requires a gradient"),
}


@pytest.mark.parametrize("case", IN_TWO_PASSES.values(), ids=IN_TWO_PASSES)
def test_is_left_to_aten(case):
    inputs, steps, reason = case
    assert why_aten(lambda: ours_sum(inputs, steps, [1], False)) == reason
    assert_same(ours_sum(inputs, steps, [1], False), (inputs[0] * inputs[0]).sum(1))


def test_one_sum_of_many_is_left_to_all_threads():
    x = torch.randn(100, 700)
    with own_thread_count():
        torch.set_num_threads(2)
        assert why_aten(lambda: ours_sum([x], ["square 0"], [0, 1], False)) == FEW
        assert_same(ours_sum([x], ["square 0"], [0, 1], False), x.square().sum())


def test_autocast_is_eagers():
    x, w = torch.randn(3, 40), torch.randn(40)
    with torch.autocast("cpu"):
        assert why_aten(lambda: ours_sum([x, w], PRODUCT, [1], False)) == "autocast is on"
        assert_same(ours_sum([x, w], PRODUCT, [1], False), (x * w).sum(1))


@pytest.mark.parametrize("keepdim", [False, True])
@each_op
def test_no_dimension_stands_for_all(keepdim, ours, atens):
    x, w = torch.randn(3, 4, 50), torch.randn(50)
    assert_same(ours([x, w], PRODUCT, [], keepdim), atens(x * w, [], keepdim))


def test_a_dimension_that_is_not_there():
    with pytest.raises(IndexError, match="Dimension out of range"):
        ours_sum([torch.randn(3, 4)], ["square 0"], [2], False)
    with pytest.raises(RuntimeError, match="appears multiple times"):
        ours_sum([torch.randn(3, 4)], ["square 0"], [1, -1], False)
