from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_same, check_against_eager, kinds

# torch.nn's own checks, which a trace leaves out.
pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")

MODES = ("sum", "mean", "max")


class Bags(nn.Module):
    """Embedding bags, with weights for each sample where these are given."""

    def __init__(self, width: int = 24, rows: int = 50, **arguments: Any) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(rows, width, **arguments)

    def forward(self, indices: Tensor, offsets: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
        return self.bags(indices, offsets, weights)


def check(model: nn.Module, *inputs: Tensor) -> torch.jit.ScriptModule:
    optimized = check_against_eager(model, *inputs)
    assert kinds(optimized)["ipex::embedding_bag"] == 1
    assert kinds(optimized)["aten::embedding_bag"] == 0
    return optimized


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [1, 5, 16, 100, 128])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_matches_eager(tmp_path, mode, width, dtype):
    indices = torch.randint(0, 50, (40,), dtype=dtype)
    offsets = torch.tensor([0, 3, 3, 4, 20, 39, 40], dtype=dtype)  # empty bags in between and at the end
    optimized = check(Bags(width, mode=mode), indices, offsets)
    optimized.save(tmp_path / "model.pt")
    loaded = ipex.load(tmp_path / "model.pt")
    assert kinds(loaded) == kinds(optimized)
    with torch.no_grad():
        assert_same(loaded(indices, offsets), optimized(indices, offsets), tolerance=0)


@pytest.mark.parametrize("mode", MODES)
def test_many_indices_and_bags(mode):
    check(Bags(33, mode=mode), torch.randint(0, 50, (5000,)), torch.arange(0, 5000, 4))


@pytest.mark.parametrize("mode", MODES)
def test_bags_of_equal_size(mode):
    check(Bags(mode=mode), torch.randint(0, 50, (7, 5)))


@pytest.mark.parametrize("mode", MODES)
def test_last_offset_included(mode):
    check(Bags(mode=mode, include_last_offset=True), torch.randint(0, 50, (30,)), torch.tensor([0, 10, 10, 30]))


@pytest.mark.parametrize("mode", MODES)
def test_padding_does_not_count(mode):
    indices = torch.tensor([3, 1, 3, 2, 3, 3, 4])
    check(Bags(mode=mode, padding_idx=3), indices, torch.tensor([0, 2, 4, 6]))


def test_weights_of_samples():
    check(Bags(mode="sum"), torch.randint(0, 50, (30,)), torch.tensor([0, 10, 10]), torch.randn(30))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_ordinary_number_goes_through(mode, value):
    model = Bags(mode=mode)
    with torch.no_grad():
        model.bags.weight[2, 1] = model.bags.weight[3, 1] = value
        model.bags.weight[4, 1] = -value
    check(model, torch.tensor([2, 1, 1, 2, 3, 4, 1, 3, 5]), torch.tensor([0, 2, 4, 6]))


@pytest.mark.parametrize("mode", MODES)
def test_a_transposed_weight(mode):
    model = Bags(mode=mode)
    model.bags.weight = nn.Parameter(torch.randn(24, 50).t())
    check(model, torch.randint(0, 50, (30,)), torch.tensor([0, 10]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_of_the_weight(mode, dtype):
    check(Bags(mode=mode).to(dtype), torch.randint(0, 50, (30,)), torch.tensor([0, 10]))


def test_no_bags_and_no_indices():
    nothing = torch.empty(0, dtype=torch.int64)
    check(Bags(mode="mean"), nothing, nothing)
    check(Bags(mode="mean"), nothing, torch.zeros(3, dtype=torch.int64))


WRONG = {
    "an index beyond the table": ([0, 50], [0]),
    "a negative index": ([0, -1], [0]),
    "an offset that is not zero": ([0, 1], [1]),
    "an offset beyond the indices": ([0, 1], [0, 3]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WRONG)
def test_errors_are_eagers(mode, name):
    model, (indices, offsets) = Bags(mode=mode).eval(), map(torch.tensor, WRONG[name])
    example = (torch.tensor([0]), torch.tensor([0]))
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, example))
        with pytest.raises(RuntimeError) as eager:
            model(indices, offsets)
        with pytest.raises(RuntimeError) as ours:
            optimized(indices, offsets)
    assert str(eager.value).splitlines()[0] in str(ours.value)


def test_gradients_of_the_samples():
    model = Bags(mode="sum").eval()
    indices, offsets, weights = torch.randint(0, 50, (30,)), torch.tensor([0, 10]), torch.randn(30)
    optimized = ipex.jit_optimize(torch.jit.trace(model, (indices, offsets, weights)))
    ours, eager = weights.clone().requires_grad_(), weights.clone().requires_grad_()
    optimized(indices, offsets, ours).sum().backward()
    model(indices, offsets, eager).sum().backward()
    torch.testing.assert_close(ours.grad, eager.grad)


@pytest.mark.parametrize("mode", [-(2**31), -1, 3])
def test_what_is_no_mode(mode):
    rest = torch.tensor([1]), torch.tensor([0]), mode, None, False, None
    with pytest.raises(RuntimeError, match=f"embedding_bag: expected mode 0, 1 or 2 .sum, mean, max., got {mode}"):
        torch.ops.ipex.embedding_bag(torch.randn(4, 32), *rest)
    with pytest.raises(RuntimeError, match=r"embedding_bag: expected offsets of one dimension, got \[1, 0\]"):
        torch.ops.ipex.embedding_bag(
            torch.ones(4, 0),
            torch.ones(4, 16, dtype=torch.int64),
            torch.ones(1, 0, dtype=torch.int64),
            1,
            None,
            True,
            1,
        )
    with pytest.raises(RuntimeError, match=r"expected indices of one dimension for mode 2 .max., got \[2, 3\]"):
        torch.ops.ipex.embedding_bag(
            torch.ones(7, 16),
            torch.zeros(2, 3, dtype=torch.int64),
            torch.zeros(1, dtype=torch.int64),
            2,
            None,
            False,
            None,
        )
    with pytest.raises(RuntimeError, match="embedding_bag_in_int8: expected mode 0, 1 or 2"):
        torch.ops.ipex.embedding_bag_in_int8(torch.zeros(4, 32, dtype=torch.uint8), torch.randn(4, 2), *rest)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 8), (torch.bfloat16, 4), (torch.float64, 32)])
@pytest.mark.parametrize(("offsets", "includes_last"), [([], False), ([0], True), ([3], True)])
def test_no_bags(mode, dtype, width, offsets, includes_last):
    """aten's own, asked for a maximum, ends the process."""
    rest = torch.tensor([1, 2, 3]), torch.tensor(offsets, dtype=torch.int64), mode, None, includes_last, None
    try:
        result = torch.ops.ipex.embedding_bag(torch.randn(20, width, dtype=dtype), *rest)
    except RuntimeError:
        return  # as aten does for offsets that it checks
    assert result.shape == (0, width)
    assert result.dtype == dtype
