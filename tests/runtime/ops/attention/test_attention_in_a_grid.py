"""ipex::attention_in_a_grid against aten with the sum for a mask: values, strides, and what needs the sum."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from support import assert_same, own_thread_count


def inputs(height: int, width: int, queries: int, heads: int = 2, depth: int = 16) -> tuple[list[Tensor], list[Tensor]]:
    q, k, v = (torch.randn(2, heads, count, depth) for count in (queries, height * width, height * width))
    sides = torch.randn(2 * heads, queries, height, 1), torch.randn(2 * heads, queries, 1, width)
    return [q, k, v], list(sides)


def said(call) -> list[str]:
    with torch.profiler.profile() as profile:
        call()
    return [e.name for e in profile.events() if e.name.startswith("ipex::attention_in_a_grid of")]


def check(tensors: list[Tensor], sides: list[Tensor], in_memory: bool = False, tolerance: float = 1e-5) -> None:
    q, k, _ = tensors
    shape = torch.ops.ipex.shape_of_sum(*sides).reshape(*q.shape[:-1], k.size(-2))
    assert not any(shape.stride())

    def ours() -> Tensor:
        return torch.ops.ipex.attention_in_a_grid(*tensors, shape, *sides, 0.0, False, None, False)

    expected = F.scaled_dot_product_attention(*tensors, (sides[0] + sides[1]).reshape(shape.shape))
    assert_same(ours(), expected, tolerance)
    assert bool(said(ours)) == in_memory


# Less than a register in a row, some registers; one query, a few, blocks of them.
@pytest.mark.parametrize("grid", [(1, 1), (1, 7), (7, 1), (5, 3), (14, 14), (3, 37), (16, 16)])
@pytest.mark.parametrize("queries", [1, 3, 49, 130])
def test_sizes(grid, queries):
    with torch.no_grad():
        check(*inputs(*grid, queries))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads(threads):
    with own_thread_count(), torch.no_grad():
        torch.set_num_threads(threads)
        check(*inputs(14, 14, 196, heads=3))


def test_layouts_of_sides():
    tensors, (rows, columns) = inputs(4, 6, 24)
    with torch.no_grad():
        check(tensors, [rows.permute(1, 0, 2, 3).contiguous().permute(1, 0, 2, 3), columns])
        check(tensors, [rows.expand(-1, -1, -1, 6), columns.expand(-1, -1, 4, -1)])
        check(tensors, [columns, rows])


def test_several_batches():
    with torch.no_grad():
        q, k, v = (torch.randn(2, 3, 2, 12, 8) for _ in range(3))
        check([q, k, v], [torch.randn(12, 12, 4, 1), torch.randn(12, 12, 1, 3)], in_memory=True)


def test_other_masks_are_added_up():
    tensors, (rows, columns) = inputs(4, 6, 24)
    with torch.no_grad():
        check(tensors, [rows + torch.zeros(6), columns], in_memory=True)  # it may differ along the columns
        rounded = [[t.bfloat16() for t in some] for some in (tensors, (rows, columns))]
        check(*rounded, in_memory=True, tolerance=1e-2)
        rows[0, 0, 0] = torch.nan
        check(tensors, [rows, columns], in_memory=True)
        columns[:] = -torch.inf
        check(tensors, [rows, columns], in_memory=True)
    check(tensors, [torch.randn_like(rows).requires_grad_(), torch.randn_like(columns)], in_memory=True)


def test_no_sum_in_memory():
    tensors, sides = inputs(32, 32, 1024)
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profile:
        shape = torch.ops.ipex.shape_of_sum(*sides).reshape(2, 2, 1024, 1024)
        torch.ops.ipex.attention_in_a_grid(*tensors, shape, *sides, 0.0, False, None, False)
    allocated = [e.cpu_memory_usage for e in profile.events() if e.cpu_memory_usage > 0]
    assert max(allocated, default=0) < shape.numel() * 4 / 8
