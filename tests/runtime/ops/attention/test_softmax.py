import math
from functools import partial

import pytest
import torch
from torch import Tensor

import ipex  # noqa: F401
from low_precision import assert_no_worse, both_dtypes
from support import assert_same, assert_same_error, fast

OPS = ((torch.ops.ipex.softmax, torch.softmax), (torch.ops.ipex.log_softmax, torch.log_softmax))


def check(x: Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, by_kernel: bool = True) -> None:
    for ours, stock in OPS:
        assert_same(ours(x, dim, dtype), stock(x, dim, dtype), tolerance=1e-5 if by_kernel else 0)
        assert fast(partial(ours, x, dim, dtype)) == by_kernel


@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (3, 1), (3, 33), (2, 4, 16), (1, 1000), (300, 5), (2, 3, 5, 17)])
@pytest.mark.parametrize("spread", [1, 30, 1e4])
def test_matches_eager(shape, spread):
    check(torch.randn(shape) * spread)
    check(torch.randn(shape) * spread, len(shape) - 1, torch.float32)


LONG_ROWS = {
    "heads": torch.randn(2, 3, 40, 70).transpose(1, 2),
    "gaps": torch.randn(5, 90)[:, 7:80],
    "spread": torch.randn(1, 3, 64).expand(4, 3, 64),
    "one row": torch.randn(1, 130)[:, 65:],
    "a row": torch.randn(3, 100, 2).mT[1, 0],
    "columns": torch.randn(70, 6).T,
}


@pytest.mark.parametrize("x", LONG_ROWS.values(), ids=LONG_ROWS)
def test_rows_wherever_they_lie(x):
    check(x)


def test_a_row_that_is_not_finite_among_strided_ones():
    x = torch.randn(2, 3, 40, 70).transpose(1, 2)
    x[1, 20, 2, 5] = math.nan
    check(x, by_kernel=False)


def test_is_as_exact_as_eager():
    x = torch.randn(64, 1000) * 5
    exact = torch.softmax(x.double(), -1)
    ours, eager = (
        ((y - exact) / exact).abs().max() for y in (torch.ops.ipex.softmax(x, -1, None), torch.softmax(x, -1))
    )
    assert ours <= 2 * eager


@pytest.mark.parametrize("shape", [(64, 1000), (64, 3), (64, 40, 5)])
def test_logarithms_are_as_exact_as_eagers(shape):
    x = torch.randn(shape) * 5
    exact = torch.log_softmax(x.double(), 1)
    ours, eager = ((y - exact).abs().max() for y in (torch.ops.ipex.log_softmax(x, 1, None), torch.log_softmax(x, 1)))
    assert ours <= 2 * eager


def test_keeps_what_is_smaller_than_a_normal_number():
    x = torch.tensor([0.0] + [-80 - 0.25 * i for i in range(120)])
    ours, eager = torch.ops.ipex.softmax(x, -1, None), torch.softmax(x, -1)
    assert torch.equal(ours == 0, eager == 0)
    torch.testing.assert_close(ours.log(), eager.log(), rtol=0, atol=0.5)
    torch.testing.assert_close(ours[:20].log(), eager[:20].log())


def test_minus_infinity_beside_numbers():
    x = torch.randn(5, 20)
    x[1, 3:] = x[2, :19] = -math.inf
    check(x)
    assert torch.ops.ipex.softmax(x, -1, None)[1, 3:].eq(0).all()


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("where", [0, 9, 19])
def test_rows_that_are_not_finite(value, where):
    x = torch.randn(5, 20)
    x[2, where] = value
    check(x, by_kernel=False)
    check(torch.full((2, 9), -math.inf), by_kernel=False)


@both_dtypes
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 33), (2, 4, 16), (300, 5), (2, 3, 5, 197)])
@pytest.mark.parametrize("result", [None, torch.float32])
def test_16_bits(dtype, shape, result):
    for x in (torch.randn(shape).to(dtype) * 3, torch.randn(*shape, 2).to(dtype).movedim(-1, 0)):
        stock, ours = torch.softmax(x, -1, result), torch.ops.ipex.softmax(x, -1, result)
        assert (ours.dtype, ours.stride()) == (stock.dtype, stock.stride())
        if result:
            assert torch.equal(ours, torch.ops.ipex.softmax(x.float(), -1, None))
        else:
            assert_no_worse(ours, stock, torch.softmax(x.double(), -1), dtype, times=1)
        assert fast(partial(torch.ops.ipex.softmax, x, -1, result))


@both_dtypes
def test_16_bits_that_are_no_numbers(dtype):
    x = torch.randn(5, 20).to(dtype)
    x[1, 3:] = -math.inf
    torch.testing.assert_close(torch.ops.ipex.softmax(x, -1, None), torch.softmax(x, -1))
    assert fast(lambda: torch.ops.ipex.softmax(x, -1, None))
    x[2, 4] = math.nan
    check(x, by_kernel=False)


@pytest.mark.parametrize("shape", [(2, 5, 7, 3), (1, 4, 9, 9), (3, 1, 40, 2), (1, 6, 1, 33)])
def test_rows_that_are_no_runs_of_memory(shape):
    x = torch.randn(shape)
    before = x.clone()
    for order in ((0, 3, 1, 2), (0, 2, 3, 1), (3, 2, 1, 0)):
        check(x.permute(order))
        check(x.permute(order)[..., ::2])
        check(x.expand(2, *shape).permute(1, 2, 3, 4, 0))
    assert torch.equal(x, before)
    x[0, 0, 0, 0] = math.nan
    check(x.permute(0, 2, 3, 1), by_kernel=False)


SHAPES_OF_IMAGES = [(7, 3), (2, 5, 1), (3, 4, 33), (2, 3, 5, 17), (1, 64, 8, 9), (1, 1000, 70), (5, 1, 64, 2)]


@pytest.mark.parametrize("shape", SHAPES_OF_IMAGES)
@pytest.mark.parametrize("spread", [1, 30, 1e4])
def test_another_dimension(shape, spread):
    x = torch.randn(shape) * spread
    for dim in range(-len(shape), len(shape)):
        check(x, dim)
        check(x, dim, torch.float32)
    before = x.clone()
    check(x.transpose(0, -1), 0)
    check(x[..., ::2], 1)
    if x.dim() == 4:
        check(x.to(memory_format=torch.channels_last), 1)
    assert torch.equal(x, before)


def test_another_dimension_is_as_exact_as_eager():
    x = torch.randn(2, 1000, 70) * 5
    exact = torch.softmax(x.double(), 1)
    ours, eager = (((y - exact) / exact).abs().max() for y in (torch.ops.ipex.softmax(x, 1, None), torch.softmax(x, 1)))
    assert ours <= 2 * eager


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("column", [0, 15, 63, 69])
def test_columns_that_are_not_finite(value, column):
    x = torch.randn(2, 9, 70)
    x[1, 4, column] = value
    check(x, 1, by_kernel=False)
    x = torch.randn(2, 9, 70)
    x[1, :, column] = -math.inf
    check(x, 1, by_kernel=False)
    x[1, 3, column] = 1.0
    check(x, 1)


@both_dtypes
@pytest.mark.parametrize("result", [None, torch.float32])
def test_16_bits_of_another_dimension(dtype, result):
    x = (torch.randn(2, 50, 7) * 3).to(dtype)
    for op, eager in OPS:
        stock, ours = eager(x, 1, result), op(x, 1, result)
        assert (ours.dtype, ours.stride()) == (stock.dtype, stock.stride())
        assert_no_worse(ours, stock, eager(x.double(), 1), result or dtype)
        assert fast(partial(op, x, 1, result))


def test_the_rest_is_left_to_aten():
    x = torch.randn(4, 6, 8)
    check(x.double(), by_kernel=False)
    check(x, dtype=torch.float64, by_kernel=False)
    check(x, dtype=torch.bfloat16, by_kernel=False)
    check(x.bfloat16(), dtype=torch.float16, by_kernel=False)
    check(x[:0], by_kernel=False)
    check(torch.tensor(2.0), by_kernel=False)
    with torch.autocast("cpu", torch.bfloat16):
        check(x.bfloat16(), by_kernel=False)
    for ours, stock in OPS:
        for dim in (3, -4):
            assert_same_error(lambda: ours(x, dim, None), lambda: stock(x, dim))  # noqa: B023


def test_gradients_are_those_of_eager():
    x = torch.randn(4, 8, requires_grad=True)
    weight = torch.randn(4, 8)
    (actual,) = torch.autograd.grad((torch.ops.ipex.softmax(x, -1, None) * weight).sum(), x)
    (expected,) = torch.autograd.grad((torch.softmax(x, -1) * weight).sum(), x)
    assert_same(actual, expected)
