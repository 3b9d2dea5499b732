"""ipex::einsum_operand is a view of a factor as aten::matmul takes it, and refuses what the equation does not name."""

from __future__ import annotations

import pytest
import torch

import ipex  # noqa: F401

operand = torch.ops.ipex.einsum_operand


def test_permutes_the_last_dimensions():
    x, other = torch.randn(2, 5, 3, 8), torch.randn(2, 6, 3, 8)
    y = operand(x, other, [-4, -2, -3, -1], [-1, -1], False)
    assert torch.equal(y, x.transpose(1, 2))
    assert y.data_ptr() == x.data_ptr()
    assert torch.equal(operand(x, other, [-2, -3, -1], [-1, -1], True), x.transpose(1, 2))
    assert operand(x, other, [-4, -3, -2, -1], [-1, -1], False) is x


def test_repeats_one_element_that_is_summed_over():
    x, other = torch.randn(2, 5, 1), torch.randn(2, 8, 5)
    assert operand(x, other, [-3, -2, -1], [-1, -2], False).shape == (2, 5, 8)
    assert operand(x, x, [-3, -2, -1], [-1, -1], False).shape == (2, 5, 1)
    assert operand(other, x, [-3, -2, -1], [-2, -1], False).shape == (2, 8, 5)
    assert operand(x, torch.randn(8), [-3, -2, -1], [-1, -2], False).shape == (2, 5, 1)


@pytest.mark.parametrize(("own", "others"), [(1, 1), (1, 8), (8, 1)])
def test_promotes_where_one_element_is_multiplied_by(own, others):
    x, other = torch.randn(2, 5, own).bfloat16(), torch.randn(2, others, 5)
    assert operand(x, other, [-3, -2, -1], [-1, -2], False).dtype == torch.float32
    assert operand(other, x, [-3, -2, -1], [-2, -1], False).dtype == torch.float32
    one = other[:, :1]
    y = operand(x, one, [-3, -2, -1], [-1, -2], False) @ operand(one, x, [-3, -2, -1], [-2, -1], False)
    assert torch.einsum("bij,bjk->bik", x, one).dtype == torch.float32  # which adds up in bfloat16 before
    torch.testing.assert_close(y, torch.einsum("bij,bjk->bik", x.float(), one))


def test_several_elements_of_other_dtypes_stay():
    x, other = torch.randn(2, 5, 8).bfloat16(), torch.randn(2, 8, 5)
    assert operand(x, other, [-3, -2, -1], [-1, -2], False) is x


@pytest.mark.parametrize(("shape", "has_more"), [((5, 8), False), ((1, 2, 5, 8), False), ((5, 8), True)])
def test_refuses_other_ranks(shape, has_more):
    x = torch.randn(shape)
    with pytest.raises(RuntimeError, match="expected a factor of 3 dimensions"):
        operand(x, x, [-3, -2, -1], [-1, -1], has_more)


def test_refuses_damaged_numbers():
    x = torch.randn(2, 3)
    with pytest.raises(RuntimeError, match="file is damaged"):
        operand(x, x, [-2, -1], [-1], False)


def test_has_gradients():
    x = torch.randn(2, 3, requires_grad=True)
    operand(x, torch.randn(4, 3), [-1, -2], [-1, -1], False).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
