"""ipex::look_up is aten's embedding, whatever the indices are."""

import pytest
import torch

import ipex  # noqa: F401
from support import assert_same

WEIGHT = torch.randn(30, 8)
INDICES = {
    "rows": torch.randint(0, 30, (2, 5)),
    "of 32 bits": torch.randint(0, 30, (7,), dtype=torch.int32),
    "one": torch.tensor(3),
    "none": torch.zeros(0, 3, dtype=torch.long),
    "gaps": torch.randint(0, 30, (4, 6))[:, ::2],
}


@pytest.mark.parametrize("name", INDICES)
def test_matches_aten(name):
    ours = torch.ops.ipex.look_up(WEIGHT, INDICES[name], -1, False, False)
    assert_same(ours, torch.embedding(WEIGHT, INDICES[name]), tolerance=0)


@pytest.mark.parametrize("weight", [WEIGHT.T.contiguous().T, torch.randn(30, 16)[:, ::2], torch.randn(30, 16)[::2, 3:]])
def test_weights_that_lie_otherwise(weight):
    indices = torch.randint(0, weight.size(0), (2, 5))
    ours = torch.ops.ipex.look_up(weight, indices, -1, False, False)
    assert_same(ours, torch.embedding(weight, indices), tolerance=0)


OUTSIDE = [torch.tensor([1, 30]), torch.tensor([1, -1]), torch.tensor([2**40]), torch._neg_view(torch.tensor([1, 2]))]


@pytest.mark.parametrize("indices", OUTSIDE, ids=str)
def test_indices_outside_are_refused(indices):
    with pytest.raises((RuntimeError, IndexError), match="index out of range"):
        torch.ops.ipex.look_up(WEIGHT, indices, -1, False, False)
