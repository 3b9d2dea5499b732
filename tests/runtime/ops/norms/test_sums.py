"""Sums, variances, largest elements and Euclidean norms over some dimensions: aten's values, and what is left to it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from support import assert_same, why_aten

IPEX = torch.ops.ipex
OPS = {
    "norm": (IPEX.vector_norm, lambda x, dims, keepdim: torch.linalg.vector_norm(x, 2, dims, keepdim)),
    "sum": (IPEX.sum, torch.sum),
    "var": (
        lambda x, dims, keepdim: IPEX.var(x, dims, 1, keepdim),
        lambda x, dims, keepdim: torch.var(x, dims, correction=1, keepdim=keepdim),
    ),
    "biased std": (
        lambda x, dims, keepdim: IPEX.std(x, dims, 0, keepdim),
        lambda x, dims, keepdim: torch.std(x, dims, correction=0, keepdim=keepdim),
    ),
    "amax": (IPEX.amax, torch.amax),
}
VARIANCES = (OPS["var"][0], OPS["biased std"][0])
TOO_SMALL = "a variance is not finite, or smaller than floats can sum"
each_op = pytest.mark.parametrize(("ours", "atens"), OPS.values(), ids=OPS.keys())


def image(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


CASES = {
    "an image": (lambda c: image(2, c, 14, 13), [2, 3]),
    "a large one, from the end": (lambda c: image(1, c, 56, 61), [-1, -2]),
    "channels that lie last": (lambda c: torch.randn(3, 7, 6, c), [1, 2]),
    "tokens": (lambda c: torch.randn(2, 50, c), [1]),
    "channels of planes": (lambda c: torch.randn(2, 9, 5, c), [1]),
    "the batch": (lambda c: torch.randn(4, c), [0]),
    "rows": (lambda c: torch.randn(3, 70, c), [2]),
    "an image in planes": (lambda c: torch.randn(2, 8, 5, c), [2, 3]),
    "channels of pixels": (lambda c: image(2, c, 5, 6), [1]),
    "all": (lambda c: torch.randn(4, c), [0, 1]),
    "a piece of each row": (lambda c: torch.randn(3, 7, 2 * c)[..., c:], [-1]),
    "heads": (lambda c: torch.randn(2, 9, 3, 4, c).permute(2, 0, 3, 1, 4)[1], [-1]),
    "heads by channel": (lambda c: torch.randn(2, 9, 3, 4, c).permute(2, 0, 3, 4, 1)[0], [-1]),
    "the same for all": (lambda c: torch.randn(c).expand(5, 6, c), [1]),
    "kept in another order": (lambda c: torch.randn(2, 8, 5, c).permute(0, 3, 1, 2), [2]),
    "branches of pixels": (lambda c: image(2, 3 * c, 5, 6).unflatten(1, (3, c)), [1]),
    "branches of planes": (lambda c: torch.randn(2, 3 * c, 5, 6).unflatten(1, (3, c)), [1]),
    "a volume": (lambda c: torch.randn(1, c, 3, 4, 5).to(memory_format=torch.channels_last_3d), [2, 3, 4]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("channels", [2, 17, 64, 200])
@pytest.mark.parametrize("keepdim", [False, True])
@each_op
def test_matches_aten(case, channels, keepdim, ours, atens):
    make, dims = case
    x = make(channels)
    before = x.clone()
    expected = atens(x, dims, keepdim)
    # It may be that floats lack the squares.
    has_no_spread = ours in VARIANCES and bool((expected == 0).any())
    assert why_aten(lambda: ours(x, dims, keepdim)) == (TOO_SMALL if has_no_spread else None)
    assert_same(ours(x, dims, keepdim), expected)
    assert torch.equal(x, before)


@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf, 1e30, 1e-30])
@each_op
def test_nan_infinity_and_what_overflows(special, ours, atens):
    x = image(2, 24, 7, 7)
    x[0, 5, 3, 3] = special
    for dims in ([2, 3], [1]):
        assert_same(ours(x, dims, True), atens(x, dims, True))


def test_negative_zeros_add_up_to_zero():
    for x in (image(1, 4, 3, 3).unflatten(1, (2, 2)), torch.randn(3, 2, 20)):
        zeros = torch.full_like(x, -0.0)
        expected = zeros.sum(1)
        assert torch.equal(IPEX.sum(zeros, [1], False).signbit(), expected.signbit())


def test_a_long_sum_is_as_exact_as_atens():
    for x in (torch.rand(1, 40, 30000).mT, torch.rand(1, 30000, 40), torch.rand(1, 40, 30000)):
        dim = 1 if x.size(1) == 30000 else 2
        exact = x.double().sum(dim)
        error = (IPEX.sum(x, [dim], False) - exact).abs().max()
        assert error <= 2 * (x.sum(dim) - exact).abs().max() + 1e-6 * exact.max()


@pytest.mark.parametrize("offset", [1e3, -1e5])
def test_a_variance_much_smaller_than_the_mean(offset):
    for x in (torch.randn(5, 700) + offset, (torch.randn(700, 5) + offset).mT):
        exact = x.double().var(1)
        assert (IPEX.var(x, [1], None, False) - exact).abs().max() <= 1e-5 * exact.max()


@pytest.mark.parametrize("size", [1e-18, 1e-22, 1e-30])
def test_a_variance_of_numbers_whose_squares_floats_lack(size):
    """Eager sums in double precision."""
    for x in (torch.randn(5, 700) * size, (torch.randn(700, 5) * size).mT):
        exact = x.double().std(1)
        assert (IPEX.std(x, [1], None, False) - exact).abs().max() <= 1e-5 * exact.max()


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_a_variance_without_degrees_of_freedom():
    x = torch.randn(3, 4)
    assert why_aten(lambda: IPEX.var(x, [1], 4, True)) == "it has no degrees of freedom"
    assert_same(IPEX.var(x, [1], 4, True), torch.var(x, [1], correction=4, keepdim=True))
    assert_same(IPEX.std(x, [1], 2.5, True), torch.std(x, [1], correction=2.5, keepdim=True))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [-1, 1, 0])
def test_largest_elements_of_a_dimension(dim, keepdim):
    x = torch.randn(3, 5, 40)
    assert why_aten(lambda: IPEX.max_values(x, dim, keepdim)) is None
    assert torch.equal(IPEX.max_values(x, dim, keepdim), x.max(dim, keepdim)[0])
    for left in (x.double(), x.int(), torch.tensor(3.0)):
        assert torch.equal(IPEX.max_values(left, -1, keepdim), left.max(-1, keepdim)[0])


@pytest.mark.parametrize("length", [1, 7, 16, 40])
def test_a_nan_is_the_largest_wherever_it_stands(length):
    for at in range(length):
        x = torch.randn(2, length, 3)
        x[1, at] = torch.nan
        for each in (x, x.mT.contiguous().mT):
            assert torch.equal(IPEX.amax(each, [1], False).isnan(), x.amax(1).isnan())


NOTHING_INNERMOST = "no dimension that it could take in vectors lies innermost"
LEFT_TO_ATEN = {
    "one between": (torch.randn(2, 8, 5, 6), [1, 3], NOTHING_INNERMOST),
    "gaps": (torch.randn(2, 8, 5, 6)[..., ::2], [1], NOTHING_INNERMOST),
    "single numbers": (torch.tensor([[1e30], [-2.0]]), [1], NOTHING_INNERMOST),
    "float64": (torch.randn(2, 8, 5, dtype=torch.float64), [1], "its input is not a float32 CPU tensor"),
    "a gradient": (torch.randn(2, 8, 5, requires_grad=True), [1], "its input requires a gradient"),
    "all of them": (torch.randn(2, 8, 5), [], NOTHING_INNERMOST),
    "nothing": (torch.randn(2, 3, 0), [1], "it does not sum over dimensions"),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("case", LEFT_TO_ATEN.values(), ids=LEFT_TO_ATEN.keys())
@each_op
def test_the_rest_is_left_to_aten(case, ours, atens):
    x, dims, reason = case
    assert why_aten(lambda: ours(x, dims, True)) == reason
    assert_same(ours(x, dims, True).detach(), atens(x, dims, True).detach(), tolerance=0)


@pytest.mark.parametrize("dims", [[1, 1], [4]])
@each_op
def test_dimensions_that_aten_refuses(dims, ours, atens):
    x = torch.randn(2, 8, 5)
    with pytest.raises((RuntimeError, IndexError)):
        ours(x, dims, True)
