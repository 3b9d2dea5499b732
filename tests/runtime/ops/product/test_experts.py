"""What a mixture does around its products: rows in the order of their experts, and back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from support import assert_same

ops = torch.ops.ipex


def by_hand(rows: Tensor, chosen: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    order = chosen.flatten().argsort(stable=True)
    ends = torch.bincount(chosen.flatten(), minlength=experts).cumsum(0).int()
    return rows[order // chosen.shape[1]], order, ends


def summed(found: Tensor, order: Tensor, weights: Tensor) -> Tensor:
    weighted = found * weights.flatten()[order].unsqueeze(1).to(found.dtype)
    return torch.zeros_like(weighted).index_copy(0, order, weighted).view(*weights.shape, found.shape[1]).sum(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("tokens", "of_a_token", "experts"), [(1, 2, 5), (40, 8, 60), (700, 2, 3), (0, 2, 4), (3, 1, 1)]
)
def test_there_and_back(tokens, of_a_token, experts, dtype):
    rows, weights = torch.randn(tokens, 72, dtype=dtype), torch.rand(tokens, of_a_token)
    chosen = torch.rand(tokens, experts).topk(of_a_token)[1]
    expected, found = by_hand(rows, chosen, experts), ops.rows_by_expert(rows, chosen, experts)
    for one, other in zip(found, expected):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    total = ops.sum_of_experts(*found[:2], weights)
    assert total.dtype == dtype
    assert_same(total, summed(*expected[:2], weights), tolerance=1e-6 if dtype == torch.float32 else 0)


def test_other_layouts():
    rows, chosen = torch.randn(9, 144)[:, ::2], torch.randint(0, 5, (2, 9)).t()
    expected, found = by_hand(rows, chosen, 5), ops.rows_by_expert(rows, chosen, 5)
    assert all(torch.equal(one, other) for one, other in zip(found, expected))
    weights = torch.rand(2, 9).t()
    assert_same(ops.sum_of_experts(*found[:2], weights), summed(*expected[:2], weights), tolerance=1e-6)


def test_gradients():
    chosen, found = torch.tensor([[1, 0], [2, 1], [0, 2]]), []
    for there, back in ((by_hand, summed), (ops.rows_by_expert, ops.sum_of_experts)):
        rows = torch.arange(12.0).view(3, 4).requires_grad_()
        weights = torch.arange(6.0).view(3, 2).requires_grad_()
        own, order, _ = there(rows, chosen, 3)
        back(own.sin(), order, weights).sum().backward()
        found.append((rows.grad, weights.grad))
    assert all(torch.equal(one, other) for one, other in zip(*found))


def test_a_row_that_is_no_number_stays_with_its_token():
    rows = torch.ones(3, 8)
    rows[1] = float("nan")
    own, order, _ = ops.rows_by_expert(rows, torch.tensor([[1, 0], [2, 1], [0, 2]]), 3)
    total = ops.sum_of_experts(own, order, torch.rand(3, 2))
    assert total.isnan().all(1).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (torch.tensor([[0, 3]]), "expected experts from 0 to 2, got 3"),
        (torch.tensor([[0, -1]]), "expected experts from 0 to 2, got -1"),
        (torch.tensor([[0, 1]], dtype=torch.int32), "expected rows .* and int64 experts"),
        (torch.tensor([[0, 1], [1, 2]]), "expected rows .* and int64 experts"),
        (torch.tensor([0, 1]), "expected rows .* and int64 experts"),
    ],
)
def test_other_experts_are_refused(chosen, message):
    with pytest.raises((IndexError, RuntimeError), match=message):
        ops.rows_by_expert(torch.randn(1, 8), chosen, 3)


@pytest.mark.parametrize("order", [[0, 0], [0, 2], [-1, 0]])
def test_other_orders_are_refused(order):
    with pytest.raises(RuntimeError, match="expected each of 2 places once"):
        ops.sum_of_experts(torch.randn(2, 8), torch.tensor(order), torch.rand(1, 2))
