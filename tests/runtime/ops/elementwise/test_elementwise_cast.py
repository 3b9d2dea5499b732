"""Elementwise ops that read or give 16 bits and compute in float32: what the casts around them give, bit by bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ipex  # noqa: F401
from support import assert_same, own_thread_count, why_aten

OPS = torch.ops.ipex
HALVES = (torch.bfloat16, torch.float16)
STEPS = ["mul 0 1", "add_number(0.3) 2", "silu 3"]
CASES = {
    "rows": (torch.randn(5, 70), torch.randn(5, 70)),
    "long": (torch.randn(9, 3000), torch.randn(9, 3000)),
    "a gate": (torch.randn(2, 24, 9, 7).to(memory_format=torch.channels_last), torch.randn(2, 24, 1, 1)),
    "a gate of planes": (torch.randn(2, 24, 9, 7), torch.randn(2, 24, 1, 1)),
    "one for all": (torch.randn(6, 40), torch.randn(())),
    "turned": (torch.randn(40, 6).mT, torch.randn(6, 40)),
    "a piece": (torch.randn(6, 80)[:, ::2], torch.randn(40)),
    "a smaller product": (torch.randn(1, 40), torch.randn(1, 40)),
}


def assert_equal(actual: Tensor, expected: Tensor) -> None:
    assert_same(actual, expected, 0)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("read", HALVES)
@pytest.mark.parametrize("given", [None, *HALVES])
@pytest.mark.parametrize("restored", [(True, True), (True, False), (False, True)])
def test_is_what_the_casts_give(case, read, given, restored):
    inputs = [x.to(read) if is_cast else x for x, is_cast in zip(case, restored)]
    expected = OPS.elementwise([OPS.restore_precision(x) for x in inputs], STEPS)
    expected = OPS.lower_precision(expected, given) if given else expected
    assert why_aten(lambda: OPS.elementwise(inputs, STEPS, list(restored), dtype=given)) is None
    assert_equal(OPS.elementwise(inputs, STEPS, list(restored), dtype=given), expected)


@pytest.mark.parametrize("read", HALVES)
def test_special_values(read):
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e-40, 65504.0, 3e38, 1.0 + 2**-9]).to(read)
    expected = OPS.lower_precision(OPS.elementwise([x.float()], ["add_number(0.001) 0"]), read)
    assert_equal(OPS.elementwise([x], ["add_number(0.001) 0"], [True], dtype=read), expected)


def test_a_step_that_is_smaller_than_what_it_becomes():
    x, a, b = torch.randn(2, 8, 20).bfloat16(), torch.randn(2, 8, 1).bfloat16(), torch.randn(2, 8, 1)
    steps = ["add 1 2", "sigmoid 3", "mul 0 4"]
    expected = OPS.elementwise([x.float(), a.float(), b], steps).bfloat16()
    assert_equal(OPS.elementwise([x, a, b], steps, [True, True, False], dtype=torch.bfloat16), expected)


@pytest.mark.parametrize("dims", [[-1], [1], [0, 2]])
@pytest.mark.parametrize("read", HALVES)
@pytest.mark.parametrize("kind", ["sum", "mean"])
def test_sums_of_16_bits(dims, read, kind):
    x, w = torch.randn(6, 30, 40).to(read), torch.randn(40)
    steps, how = ["mul 0 1"], (dims, True, kind == "mean")
    cast = {"restored": [True, False]}
    assert why_aten(lambda: OPS.elementwise([x, w], steps, *how, **cast)) is None
    expected = OPS.elementwise([x.float(), w], steps, *how)
    assert_equal(OPS.elementwise([x, w], steps, *how, **cast), expected)
    assert_equal(OPS.elementwise([x, w], steps, *how, **cast, dtype=read), expected.to(read))


BY_ITSELF = {
    "not restored": (
        [torch.randn(3, 4).bfloat16(), torch.randn(4)],
        [False, False],
        "its inputs are of several dtypes",
    ),
    "doubles": (
        [torch.randn(3, 4, dtype=torch.double), torch.randn(4)],
        [True, False],
        "its inputs are of another dtype",
    ),
    "a gradient": (
        [torch.randn(3, 4, requires_grad=True), torch.randn(4)],
        [True, True],
        "an input requires a gradient",
    ),
}


@pytest.mark.parametrize("case", BY_ITSELF.values(), ids=BY_ITSELF)
def test_casts_by_itself(case):
    inputs, restored, reason = case
    restores = [OPS.restore_precision(x) if is_cast else x for x, is_cast in zip(inputs, restored)]
    expected = OPS.lower_precision(OPS.elementwise(restores, ["mul 0 1"]), torch.bfloat16)
    assert why_aten(lambda: OPS.elementwise(inputs, ["mul 0 1"], restored, dtype=torch.bfloat16)) == reason
    assert_equal(OPS.elementwise(inputs, ["mul 0 1"], restored, dtype=torch.bfloat16), expected)
    expected = OPS.elementwise(restores, ["mul 0 1"], [1], False)
    assert_equal(OPS.elementwise(inputs, ["mul 0 1"], [1], False, restored=restored), expected)


def test_says_what_is_wrong_with_a_file():
    with pytest.raises(RuntimeError, match="told of 1 inputs whether they are cast, got 2"):
        OPS.elementwise([torch.randn(3)], ["relu 0"], [True, False])


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("shape", [(1, 196, 144), (1, 49, 1200), (2, 14, 14, 96)])
def test_few_sums_are_shared_by_the_threads(threads, shape):
    """In parts of whole rows."""
    x, dims = torch.randn(shape), list(range(1, len(shape) - 1))
    weight = torch.randn(shape[-2:])
    with own_thread_count():
        torch.set_num_threads(threads)
        assert why_aten(lambda: OPS.elementwise_mean([x, weight], ["mul 0 1"], dims, False)) is None
        assert_same(OPS.elementwise_mean([x, weight], ["mul 0 1"], dims, False), (x * weight).mean(dims))
