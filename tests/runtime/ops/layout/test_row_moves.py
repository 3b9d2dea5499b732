"""Rows that move: the values of eager, by one copy, or by the norms beside them."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import ipex  # noqa: F401
from support import assert_same, assert_same_error, fast, own_thread_count

OPS = torch.ops.ipex
EPS = 1e-5
END = 2**63 - 1
Step = tuple[str, tuple[int, ...]]

CUT: list[Step] = [("reshape", (2, 3, 2, 4, 3, 5)), ("permute", (0, 1, 3, 2, 4, 5)), ("reshape", (-1, 6, 5))]
SHIFTED: list[Step] = [("roll", (-1, -2, 1, 2)), *CUT]
PADDED: list[Step] = [("pad", (0, 0, 0, 3, 1, 2)), ("roll", (1, 2, 1, 2)), ("reshape", (2, 3, 3, 5, 3, 5))]
TOGETHER: list[Step] = [("reshape", (2, 3, 4, 2, 3, 5)), ("permute", (0, 1, 3, 2, 4, 5)), ("reshape", (2, 6, 12, 5))]
BACK: list[Step] = [*TOGETHER, ("roll", (2, 1, 2, 1))]
CROPPED: list[Step] = [*BACK, ("slice", (1, 0, 5, 1)), ("slice", (-2, 1, END, 1)), ("slice", (3, 0, END, 1))]
TOKENS: list[Step] = [("flatten", (1, 2)), ("transpose", (0, 1)), ("contiguous", ()), ("unsqueeze", (0,))]
ROWS = {"cut": CUT, "shifted": SHIFTED, "padded": PADDED, "back": BACK, "cropped": CROPPED, "tokens": TOKENS}
# The last dimension does not stay whole.
TURNED: list[Step] = [("permute", (0, 3, 1, 2)), ("reshape", (2, 5, -1))]
SPLIT: list[Step] = [("reshape", (2, -1, 10)), ("transpose", (0, 1))]
ROLLED: list[Step] = [("roll", (1, 3)), ("flatten", (0, 1))]
WIDENED: list[list[Step]] = [[("pad", (1, 0, 0, 0, 1, 2))], [("pad", (0, 1, 0, 0, 1, 2))]]
NARROWED: list[list[Step]] = [[("slice", (3, 1, 5, 1))], [("slice", (3, 0, 4, 1))], [("slice", (3, 0, 5, 2))]]


def in_eager(x: Tensor, row: list[Step]) -> Tensor:
    for name, numbers in row:
        if name in ("reshape", "permute"):
            x = getattr(x, name)(numbers)
        elif name == "roll":
            half = len(numbers) // 2
            x = x.roll(numbers[:half], numbers[half:])
        elif name == "pad":
            x = functional.pad(x, numbers)
        elif name == "slice":
            x = torch.ops.aten.slice(x, *numbers)
        else:
            x = getattr(x, name)(*numbers)
    return x


def moves(row: list[Step]) -> tuple[Any, list[int]]:
    context = OPS.row_moves_prepack([name for name, _ in row], [len(own) for _, own in row])
    return context, [number for _, own in row for number in own]


def ours(x: Tensor, row: list[Step]) -> Tensor:
    result: Tensor = OPS.move_rows(x, *moves(row))
    return result


def layouts(x: Tensor) -> list[Tensor]:
    """The same elements in other strides."""
    apart = torch.zeros(*x.shape, 2, dtype=x.dtype)
    apart[..., 1] = x
    wide = torch.zeros(*x.shape[:-1], x.size(-1) + 3, dtype=x.dtype)
    wide[..., 1:-2] = x
    transposed = x.transpose(1, 3).contiguous().transpose(1, 3)
    return [x, transposed, apart[..., 1], wide[..., 1:-2]]


def same(actual: Tensor, expected: Tensor) -> None:
    """In any strides: nobody sees those of rows that were moved."""
    assert_same(*(y.clone(memory_format=torch.contiguous_format) for y in (actual, expected)))


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_one_copy(row, dtype):
    for x in layouts(torch.randint(1, 200, (2, 6, 12, 5)).to(dtype)):
        before = x.clone()
        y, expected = ours(x, row), in_eager(x, row)
        assert torch.equal(y, expected)
        assert y.is_contiguous()
        assert torch.equal(x, before)


@pytest.mark.parametrize("row", [TURNED, SPLIT, ROLLED, *WIDENED, *NARROWED])
def test_rows_that_are_cut_move_step_by_step(row):
    for x in layouts(torch.randn(2, 6, 12, 5)):
        assert torch.equal(ours(x, row), in_eager(x, row))
    x = torch.randn(2, 6, 12, 5, requires_grad=True)
    assert ours(x, CUT).requires_grad


def test_long_rows_and_threads():
    x = torch.randn(2, 14, 14, 96)
    row: list[Step] = [("roll", (-3, -3, 1, 2)), ("reshape", (2, 2, 7, 2, 7, 96)), ("permute", (0, 1, 3, 2, 4, 5))]
    with own_thread_count():
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert torch.equal(ours(x, row), in_eager(x, row))


def random_step(random: Random, x: Tensor) -> Step:
    """Of rows, but for a few."""
    rank, outer = x.dim(), list(range(x.dim() - 1))
    kinds = ("reshape", "permute", "roll", "pad", "slice", "transpose", "flatten", "unsqueeze", "contiguous")
    kind = random.choice(kinds)
    first, last = sorted(random.choices(outer, k=2))
    if kind == "reshape":
        left, sizes = x.numel() // x.size(-1), []
        for _ in range(random.randrange(4)):
            sizes.append(random.choice([size for size in range(1, left + 1) if left % size == 0]))
            left //= sizes[-1]
        sizes += [left, x.size(-1)]
        if random.random() < 0.4:
            sizes[random.randrange(len(sizes))] = -1
        return kind, tuple(sizes)
    if kind == "permute":
        return kind, (*random.sample(outer, rank - 1), random.choice((-1, rank - 1)))
    if kind == "roll":
        return kind, (random.randrange(-9, 9), random.randrange(-9, 9), first, last)
    if kind == "pad":
        return kind, (0, 0, random.randrange(3), random.randrange(3), *((1, 0) if rank > 2 else ()))
    if kind == "slice":
        return kind, (first, random.choice((0, 1, -2)), random.choice((END, 3, -1)), random.choice((1, 2)))
    if kind == "unsqueeze":
        return kind, (random.choice((first, -rank)),)
    if kind == "contiguous":
        return kind, ()
    return kind, (first, last)


@pytest.mark.parametrize("seed", range(200))
def test_drawn_rows(seed):
    random = Random(seed)
    x = torch.randn(*(random.randrange(1, 7) for _ in range(random.randrange(1, 4))), random.choice((1, 3, 8, 70)))
    row: list[Step] = []
    y = x
    while len(row) < 5:
        step = random_step(random, y)
        after = in_eager(y, [step])
        if after.numel() > 20000 or after.dim() > 6 or not after.numel():
            break
        row.append(step)
        y = after
    context, numbers = moves(row)
    for _ in range(2):  # the second call finds the map
        assert torch.equal(OPS.move_rows(x, context, numbers), y)
    shape, weight, bias = (x.size(-1),), torch.randn(x.size(-1)), torch.randn(x.size(-1))
    normed = functional.layer_norm(x, shape, weight, bias, EPS)
    same(OPS.layer_norm(x, shape, weight, bias, EPS, context, numbers, True), in_eager(normed, row))
    if y.size(-1) == x.size(-1):
        expected = functional.layer_norm(y, shape, weight, bias, EPS)
        same(OPS.layer_norm(x, shape, weight, bias, EPS, context, numbers), expected)
    b = torch.randn_like(x)
    given = (shape, weight, bias, EPS, True, False, context, numbers)
    result, total = OPS.layer_norm.of_sum(x, b, *given, True)
    same(result, in_eager(functional.layer_norm(x + b, shape, weight, bias, EPS), row))
    assert torch.equal(total, x + b)
    a = torch.randn(y.shape)
    if y.size(-1) != x.size(-1):
        return
    result, total = OPS.layer_norm.of_sum(a, x, *given)
    assert torch.equal(total, a + y)
    same(result, functional.layer_norm(a + y, shape, weight, bias, EPS))


def parameters(width: int) -> tuple[tuple[int], Tensor, Tensor, float]:
    return (width,), torch.randn(width), torch.randn(width), EPS


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_norm_writes_rows_where_they_go(row, dtype):
    x, b, given = torch.randn(2, 6, 12, 5).to(dtype), torch.randn(2, 6, 12, 5).to(dtype), parameters(5)
    given = (given[0], given[1].to(dtype), given[2].to(dtype), EPS)
    assert torch.equal(OPS.layer_norm(x, *given, *moves(row), True), in_eager(OPS.layer_norm(x, *given), row))
    assert fast(lambda: OPS.layer_norm(x, *given, *moves(row), True))
    stock = OPS.layer_norm.of_sum(x, b, *given, True, False)
    y, total = OPS.layer_norm.of_sum(x, b, *given, True, False, *moves(row), True)
    assert torch.equal(y, in_eager(stock[0], row))
    assert torch.equal(total, stock[1])
    assert OPS.layer_norm.of_sum(x, b, *given, False, False, *moves(row), True)[1] is None
    assert fast(lambda: OPS.layer_norm.of_sum(x, b, *given, True, False, *moves(row), True))


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_norm_reads_rows_where_they_lie(row, dtype):
    b, given = torch.randn(2, 6, 12, 5).to(dtype), parameters(5)
    given = (given[0], given[1].to(dtype), given[2].to(dtype), EPS)
    a = torch.randn(in_eager(b, row).shape).to(dtype)
    for in_place in (False, True):
        before = a.clone()
        y, total = OPS.layer_norm.of_sum(a, b, *given, True, in_place, *moves(row))
        stock = OPS.layer_norm.of_sum(a, in_eager(b, row).contiguous(), *given, True, in_place)
        assert torch.equal(y, stock[0])
        assert torch.equal(total, stock[1])
        assert torch.equal(a, before)
    assert fast(lambda: OPS.layer_norm.of_sum(a, b, *given, True, False, *moves(row)))


@pytest.mark.parametrize("row", [*ROWS.values(), ROLLED])
def test_a_norm_of_rows_that_have_moved(row):
    x, given = torch.randn(2, 6, 12, 5), parameters(5)
    same(OPS.layer_norm(x, *given, *moves(row)), functional.layer_norm(in_eager(x, row), *given))
    for row in (TURNED, SPLIT):
        y = in_eager(x, row)
        own = parameters(y.size(-1))
        same(OPS.layer_norm(x, *own, *moves(row)), functional.layer_norm(y, *own))


def test_broadcast_operands():
    given = parameters(5)
    a, b = torch.randn(6, 12, 5), torch.randn(2, 6, 12, 5)
    for pair in ((a, b), (b, a)):
        y, total = OPS.layer_norm.of_sum(*pair, *given, True, False, *moves(CUT), True)
        assert torch.equal(total, a + b)
        same(y, in_eager(functional.layer_norm(a + b, *given), CUT))
    y, total = OPS.layer_norm.of_sum(torch.randn(1, 1, 12, 5), b, *given, True, False, *moves(BACK))
    same(y, functional.layer_norm(total, *given))


@pytest.mark.parametrize("row", [TURNED, SPLIT, ROLLED])
def test_norms_beside_rows_that_are_cut(row):
    x, given = torch.randn(2, 6, 12, 5), parameters(5)
    same(OPS.layer_norm(x, *given, *moves(row), True), in_eager(functional.layer_norm(x, *given), row))
    y, _ = OPS.layer_norm.of_sum(x, x, *given, False, False, *moves(row), True)
    same(y, in_eager(functional.layer_norm(x + x, *given), row))
    both = ((12, 5), torch.randn(12, 5), torch.randn(12, 5), EPS)
    same(OPS.layer_norm(x, *both, *moves(CUT), True), in_eager(functional.layer_norm(x, *both), CUT))


@pytest.mark.parametrize("number", [math.nan, math.inf, 1e30])
def test_rows_that_are_not_finite(number):
    x, given = torch.randn(2, 6, 12, 5), parameters(5)
    x[1, 2, 3, 4] = number
    for row in (SHIFTED, PADDED):
        same(OPS.layer_norm(x, *given, *moves(row), True), in_eager(functional.layer_norm(x, *given), row))
    a = torch.randn(2, 6, 12, 5)
    y, total = OPS.layer_norm.of_sum(a, x, *given, True, False, *moves(BACK))
    same(total, a + in_eager(x, BACK))
    same(y, functional.layer_norm(a + in_eager(x, BACK), *given))


@pytest.mark.parametrize("row", [SHIFTED, PADDED, TURNED])
def test_norms_that_give_8_bit_numbers(row):
    x, b, given = torch.randn(2, 6, 12, 5), torch.randn(2, 6, 12, 5), parameters(5)
    rounding = (0.031, 97)

    def rounded(y: Tensor) -> Tensor:
        numbers: Tensor = OPS.quantize(y.contiguous(), *rounding)
        return numbers

    port = {"rounded": [0.031, 97.0]}
    numbers = OPS.layer_norm(x, *given, *moves(row), True, **port)
    assert torch.equal(numbers, rounded(OPS.layer_norm(x, *given, *moves(row), True)))
    if row is not TURNED:
        numbers = OPS.layer_norm(x, *given, *moves(row), **port)
        assert torch.equal(numbers, rounded(OPS.layer_norm(x, *given, *moves(row))))
    given = (*given, True, False)
    for moves_result in (True, False):
        if not moves_result and row is not SHIFTED:
            continue
        a = x if moves_result else x.view(12, 2 * 6, 5)[:, :6].repeat(2, 1, 1)
        numbers, total = OPS.layer_norm.of_sum(a, b, *given, *moves(row), moves_result, **port)
        floats, expected = OPS.layer_norm.of_sum(a, b, *given, *moves(row), moves_result)
        assert torch.equal(numbers, rounded(floats))
        assert torch.equal(total, expected)


@pytest.mark.parametrize(
    "row",
    [
        [("reshape", (7, 5))],
        [("reshape", (-1, 0, 5))],
        [("reshape", (2, 6, 12, 7))],
        [("permute", (0, 1, 2, 1))],
        [("roll", (1, 9))],
        [("permute", (0, 1, 1, 3))],
        [("slice", (7, 0, 1, 1))],
    ],
)
def test_errors_are_those_of_eager(row):
    x = torch.randn(2, 6, 12, 5)
    assert_same_error(lambda: ours(x, row), lambda: in_eager(x, row))


def test_damaged_files_are_refused():
    with pytest.raises(RuntimeError, match="damaged"):
        OPS.row_moves_prepack(["roll"], [])
    context, numbers = moves(CUT)
    with pytest.raises(RuntimeError, match="damaged"):
        OPS.move_rows(torch.randn(2, 6, 12, 5), context, numbers[1:])


def test_many_shapes_and_copies():
    context, _ = moves([("roll", (0, 0))])
    for size in (*range(1, 8), 1, 7):
        x = torch.randn(size, 3)
        assert torch.equal(OPS.move_rows(x, context, [1, 0]), x.roll(1, 0))
        assert torch.equal(OPS.move_rows(x, context, [2, 0]), x.roll(2, 0))
    copy = pickle.loads(pickle.dumps(context))
    assert copy.describe() == context.describe() == "ipex::move_rows(roll)"
    assert torch.equal(OPS.move_rows(torch.arange(6).view(3, 2), copy, [1, 0])[:, 0], torch.tensor([4, 0, 2]))


@pytest.mark.parametrize("dimension", [0, 1, -1])
def test_sizes_of_what_is_not_computed(dimension):
    a, b, pads = torch.randn(4, 1, 3), torch.randn(5, 1), [0, 1, 2, 3]
    assert OPS.padded_size(a, None, pads, dimension) == functional.pad(a, pads).size(dimension)
    assert OPS.padded_size(a, b, pads, dimension) == functional.pad(a + b, pads).size(dimension)
    assert OPS.padded_size(a, b, [], dimension) == (a + b).size(dimension)
    assert OPS.padded_number(a.size(dimension), 3, pads, dimension) == functional.pad(a, pads).size(dimension)


ONE_ROW = """
import resource, torch, ipex
x = torch.zeros(1 << 25, 1, dtype=torch.uint8)
moves = torch.ops.ipex.row_moves_prepack(["slice"], [4])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
y = torch.ops.ipex.move_rows(x, moves, [0, 7, 8, 1])
assert y.shape == (1, 1)
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10, "the map of all rows was made"
"""


def test_many_rows_of_which_one_is_kept_have_no_map():
    subprocess.run([sys.executable, "-W", "ignore", "-c", ONE_ROW], check=True)
