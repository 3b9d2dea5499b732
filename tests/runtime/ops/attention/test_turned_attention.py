"""Attention over channels: rows are channels, which lie side by side, and are as long as there are positions."""

import pytest
import torch
from torch import Tensor

from support import assert_same, why_aten

NAN = float("nan")


def heads(batch: int, count: int, channels: int, positions: int) -> Tensor:
    """[batch, heads, channels, positions], as a linear and a permute make it."""
    return torch.randn(batch, positions, count, channels).permute(0, 2, 3, 1)


def inputs(*sizes: int) -> list[Tensor]:
    torch.manual_seed(0)
    return [heads(*sizes) for _ in range(3)]


def eager(query: Tensor, key: Tensor, value: Tensor, scale: Tensor, *masks: Tensor) -> Tensor:
    scores = query @ key.transpose(-1, -2) * scale
    for mask in masks:
        scores = scores + mask
    return scores.softmax(-1) @ value


def ours(query: Tensor, key: Tensor, value: Tensor, *operands: Tensor, eager_layout: bool = True) -> Tensor:
    steps = ["matmul", "mul", *["add"] * (len(operands) - 1), "softmax", "matmul"]
    return torch.ops.ipex.attention(query, key.transpose(-1, -2), value, steps, list(operands), [-1.0], eager_layout)


def check(*arguments: Tensor) -> None:
    expected = eager(*arguments)
    assert why_aten(lambda: ours(*arguments)) is None
    assert_same(ours(*arguments), expected)
    as_it_lies = ours(*arguments, eager_layout=False)
    torch.testing.assert_close(as_it_lies, expected, rtol=1e-5, atol=1e-6)
    assert as_it_lies.stride(-2) == 1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("positions", [2, 127, 128, 300])
@pytest.mark.parametrize("channels", [2, 5, 16, 24, 32, 49, 64, 130])
def test_sizes(channels, positions, threads):
    torch.set_num_threads(threads)
    check(*(t / positions**0.25 for t in inputs(2, 3, channels, positions)), torch.rand(3, 1, 1))


def test_one_batch_of_heads_and_more_dimensions():
    scale = torch.tensor(0.1)
    check(*(t[0] for t in inputs(1, 3, 8, 40)), scale)
    check(*(t.unflatten(0, (2, 2)) for t in inputs(4, 3, 8, 40)), scale)


def test_more_keys_than_queries():
    query, key, value = inputs(2, 3, 20, 40)
    check(query[:, :, :7], key, value, torch.tensor(0.1))


def test_values_of_another_length():
    query, key, _ = inputs(2, 3, 20, 40)
    check(query, key, heads(2, 3, 20, 9), torch.tensor(0.1))


def test_masks():
    masks = torch.randn(2, 1, 20, 20), torch.randn(3, 20, 20)
    check(*inputs(2, 3, 20, 40), torch.tensor(0.1), *masks)


def test_parts_of_one_product():
    torch.manual_seed(0)
    qkv = torch.randn(2, 40, 3, 4, 24).permute(2, 0, 3, 4, 1)
    check(*qkv.unbind(0), torch.tensor(0.1))


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("number", [NAN, float("inf"), 1e38])
def test_what_is_not_ordinary_goes_to_aten(part, number):
    arguments = inputs(1, 2, 8, 40)
    arguments[part][0, 1, 3, 7] = number
    scale = torch.tensor(0.1)
    result = ours(*arguments, scale)
    torch.testing.assert_close(result, eager(*arguments, scale), equal_nan=True)
    assert "not finite" in str(why_aten(lambda: ours(*arguments, scale)))


def test_a_masked_channel_that_is_not_a_number():
    query, key, value = inputs(1, 2, 8, 40)
    key[0, 0, 3, 7] = NAN
    mask = torch.zeros(8, 8)
    mask[:, 3] = -float("inf")
    operands = torch.tensor(0.1), mask
    torch.testing.assert_close(ours(query, key, value, *operands), eager(query, key, value, *operands), equal_nan=True)


def test_other_dtypes_are_copied_into_rows():
    query, key, value = (t.bfloat16() for t in inputs(2, 3, 20, 40))
    scale = torch.tensor(0.1, dtype=torch.bfloat16)
    exact = eager(query.double(), key.double(), value.double(), scale.double())
    assert (ours(query, key, value, scale).double() - exact).abs().max() < 2e-2
