import copy

import pytest
import torch

from support import assert_same

OPS = {
    "add": (lambda a, b: torch.ops.ipex.add_like(a, b, 2), lambda a, b: a.add_(b, alpha=2)),
    "sub": (lambda a, b: torch.ops.ipex.sub_like(a, b, 2), lambda a, b: a.sub_(b, alpha=2)),
    "mul": (torch.ops.ipex.mul_like, lambda a, b: a.mul_(b)),
    "div": (torch.ops.ipex.div_like, lambda a, b: a.div_(b)),
}
OPERANDS = {
    "same shape": torch.randn(2, 3, 4, 5),
    "per channel": torch.randn(3, 1, 1),
    "a number": torch.tensor(1.5),
    "float64": torch.randn(2, 3, 4, 5, dtype=torch.float64),
    "integers": torch.arange(1, 6),
    "channels-last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
}
FIRST = {
    "contiguous": torch.randn(2, 3, 4, 5),
    "channels-last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "bfloat16": torch.randn(2, 3, 4, 5).bfloat16(),
    "transposed": torch.randn(3, 2, 4, 5).transpose(0, 1),
    "turned": torch.randn(5, 4, 3, 2).permute(3, 2, 1, 0),
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("other", OPERANDS)
@pytest.mark.parametrize("first", FIRST)
def test_gives_what_the_op_in_place_leaves(op, other, first):
    ours, in_place = OPS[op]
    a, b = FIRST[first], OPERANDS[other]
    before = copy.deepcopy(a)
    result = ours(a, b)
    assert_same(result, in_place(copy.deepcopy(a), b), tolerance=0)
    assert_same(a, before, tolerance=0)
    assert result.data_ptr() != a.data_ptr()


@pytest.mark.parametrize("mask", [torch.rand(5) > 0.5, torch.rand(2, 1, 4, 1) > 0.5, torch.tensor(True)])
@pytest.mark.parametrize("first", FIRST)
def test_fills_as_in_place(mask, first):
    a = FIRST[first]
    before = copy.deepcopy(a)
    assert_same(torch.ops.ipex.masked_fill_like(a, mask, -2.5), a.clone().masked_fill_(mask, -2.5), tolerance=0)
    assert_same(a, before, tolerance=0)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ops.ipex.masked_fill_like(a, torch.ones(2, 2, 3, 4, 5, dtype=torch.bool), 0)


@pytest.mark.parametrize("op", OPS)
def test_refuses_what_would_grow_the_first_operand(op):
    ours, in_place = OPS[op]
    a, b = torch.randn(1, 3), torch.randn(2, 3)
    with pytest.raises(RuntimeError) as expected:
        in_place(a.clone(), b)
    with pytest.raises(RuntimeError) as actual:
        ours(a, b)
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("op", OPS)
def test_gradients(op, wanted):
    ours, in_place = OPS[op]
    a, b = torch.randn(2, 3, dtype=torch.float64), torch.rand(2, 3, dtype=torch.float64) + 1
    leaves = [(a.clone().requires_grad_(wanted[0]), b.clone().requires_grad_(wanted[1])) for _ in range(2)]
    ours(*leaves[0]).square().sum().backward()
    in_place(leaves[1][0].clone(), leaves[1][1]).square().sum().backward()
    for mine, eager in zip(*leaves):
        assert (mine.grad is None) == (eager.grad is None)
        if mine.grad is not None:
            assert_same(mine.grad, eager.grad, tolerance=0)
