"""What ipex::elementwise does around its steps: every port with every other."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

import ipex  # noqa: F401
from support import assert_same, why_aten

OPS = torch.ops.ipex
STEPS = ["mul 0 1", "add_number(0.3) 2", "silu 3"]
SCALE, ZERO = 0.05, 93
GIVEN = {"floats": None, "16 bits": torch.bfloat16, "bytes": torch.uint8}
STORED = {"floats": {}, "16 bits": {"dtype": torch.float16}, "bytes": {"rounded": [SCALE, float(ZERO)]}}


def inputs_of(given: torch.dtype | None) -> tuple[list[Tensor], list[Tensor], dict]:
    """The inputs, what they stand for, and the ports that say so."""
    x, w = torch.randn(4, 6, 40), torch.randn(6, 1)
    if given is torch.uint8:
        numbers = torch.randint(0, 256, x.shape, dtype=given)
        floats = OPS.dequantize(numbers, SCALE, ZERO)
        return [numbers, w], [floats, w], {"affines": [SCALE, float(ZERO), 0.0, 0.0]}
    if given is None:
        return [x, w], [x, w], {}
    return [x.to(given), w], [x.to(given).float(), w], {"restored": [True, False]}


def stored(y: Tensor, how: dict) -> Tensor:
    if "rounded" in how:
        return OPS.quantize(y, *how["rounded"][:1], int(how["rounded"][1]))
    return OPS.lower_precision(y, how["dtype"]) if how else y


def same(actual: Tensor, expected: Tensor) -> None:
    assert actual.dtype == expected.dtype
    assert_same(actual, expected, 0)


both = pytest.mark.parametrize(("given", "how"), list(itertools.product(GIVEN, STORED)))


@both
def test_one_result(given, how):
    inputs, floats, ports = inputs_of(GIVEN[given])
    call = lambda **more: OPS.elementwise(inputs, STEPS, **ports, **STORED[how], **more)  # noqa: E731
    assert why_aten(call) is None
    same(call(), stored(OPS.elementwise(floats, STEPS), STORED[how]))
    sliced = call(outermost=1)
    assert sliced.select(1, 0).is_contiguous()
    assert torch.equal(sliced, call())


@both
def test_several_results(given, how):
    inputs, floats, ports = inputs_of(GIVEN[given])
    how = {k: v * 2 if k == "rounded" else v for k, v in STORED[how].items()}
    assert why_aten(lambda: OPS.elementwise.several(inputs, STEPS, [2, 4], **ports, **how)) is None
    results = OPS.elementwise.several(inputs, STEPS, [2, 4], **ports, **how)
    for y, expected in zip(results, OPS.elementwise.several(floats, STEPS, [2, 4])):
        same(y, stored(expected, how))


@both
@pytest.mark.parametrize("is_mean", [False, True])
def test_sums(given, how, is_mean):
    inputs, floats, ports = inputs_of(GIVEN[given])
    call = (STEPS, [1], False, is_mean)
    assert why_aten(lambda: OPS.elementwise(inputs, *call, **ports, **STORED[how])) is None
    same(OPS.elementwise(inputs, *call, **ports, **STORED[how]), stored(OPS.elementwise(floats, *call), STORED[how]))


def test_one_of_several_results_is_rounded():
    x = torch.randn(3, 50)
    a, b = OPS.elementwise.several([x], ["relu 0", "exp 1"], [1, 2], rounded=[SCALE, float(ZERO), 0.0, 0.0])
    same(a, OPS.quantize(x.relu(), SCALE, ZERO))
    same(b, OPS.elementwise([x], ["relu 0", "exp 1"]))


def test_a_rounded_result_that_a_larger_one_reads():
    """The larger one is made of the floats."""
    x, gate = torch.randn(2, 8, 20), torch.randn(2, 8, 1)
    steps, results, rounded = ["sigmoid 1", "mul 0 2"], [2, 3], [1 / 255, 0.0, 0.0, 0.0]
    small, large = OPS.elementwise.several([x, gate], steps, results, rounded=rounded)
    same(small, OPS.quantize(gate.sigmoid(), 1 / 255, 0))
    assert_same(large, x * gate.sigmoid())


@both
def test_what_kernels_do_not_take(given, how):
    inputs, floats, ports = inputs_of(GIVEN[given])
    inputs, floats = ([*x, torch.randn(6, 1, dtype=torch.double)] for x in (inputs, floats))
    ports = {k: [*v, *([0.0, 0.0] if k == "affines" else [False])] for k, v in ports.items()}
    steps = ["mul 0 1", "mul 3 2"]
    expected = (floats[0] * floats[1] * inputs[2]).float()
    actual = OPS.elementwise(inputs[:2], steps[:1], **{k: v[: 2 * len(v) // 3] for k, v in ports.items()})
    assert_same(actual, floats[0] * floats[1])
    if "rounded" not in STORED[how]:  # which takes no doubles
        y = OPS.elementwise(inputs, steps, **ports, **STORED[how])
        assert_same(y.float(), stored(expected, STORED[how]).float(), 2e-3)


def test_numbers_of_16_bits_are_not_cast_to_others():
    """A program of bfloat16 gives bfloat16: what is cast on is aten's."""
    x = torch.randn(3, 40).bfloat16()
    expected = OPS.elementwise([x], ["exp 0"])
    for dtype in (torch.float16, torch.float32):
        same(OPS.elementwise([x], ["exp 0"], dtype=dtype), OPS.lower_precision(expected, dtype))


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        ({"restored": [True, False]}, "told of 1 inputs whether they are cast, got 2"),
        ({"affines": [0.1, 3.0, 0.1, 3.0]}, "a scale for each of 1 inputs, got 2"),
        ({"rounded": [0.1, 3.0, 0.1, 3.0]}, "a scale for each of 1 results, got 2"),
        ({"rounded": [-0.1, 3.0]}, "scale"),
        ({"dtype": torch.int32}, "bfloat16, float16 or float32"),
    ],
)
def test_says_what_is_wrong_with_a_file(ports, message):
    with pytest.raises(RuntimeError, match=message):
        OPS.elementwise([torch.randn(3)], ["relu 0"], **ports)
