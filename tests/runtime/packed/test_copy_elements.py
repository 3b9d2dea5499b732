"""Copies of tensors whose dimensions lie in another order: the same numbers, whatever the order, size and dtype."""

from __future__ import annotations

import itertools

import pytest
import torch

from support import assert_same, own_thread_count

restore_layout, to_channels_last = torch.ops.ipex.restore_layout, torch.ops.ipex.to_channels_last


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int16, torch.double, torch.uint8])
@pytest.mark.parametrize("channels", [1, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 200])
def test_there_and_back(dtype, channels):
    for batch, height, width in ((1, 1, 1), (1, 3, 5), (2, 4, 4), (1, 16, 16), (3, 9, 15), (1, 40, 37)):
        x = numbers(batch, channels, height, width, dtype=dtype)
        there = to_channels_last(x, 2)
        assert_same(there, x.contiguous(memory_format=torch.channels_last), tolerance=0)
        assert_same(restore_layout(there, False), x, tolerance=0)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_every_order_of_dimensions(order):
    x = numbers(6, 17, 5, 20).permute(order)
    assert_same(restore_layout(x, False), x.contiguous(), tolerance=0)
    assert_same(to_channels_last(x, 2), x.contiguous(memory_format=torch.channels_last), tolerance=0)


def test_pieces_and_repetitions():
    x = numbers(4, 40, 30, 20)
    for part in (
        x[:, 3:30].permute(0, 2, 3, 1),
        x[1:3, ::2].permute(0, 2, 3, 1),
        x[..., ::2].permute(0, 3, 2, 1),
        x[:, :, :1].expand(4, 40, 30, 20).permute(0, 2, 3, 1),
        x[:1].expand(4, 40, 30, 20).transpose(1, 3),
        x[:, :1, :, :1].expand(4, 40, 30, 20).transpose(1, 2),
    ):
        assert_same(restore_layout(part, False), part.contiguous(), tolerance=0)


def test_volumes():
    x = numbers(2, 18, 5, 6, 7)
    there = to_channels_last(x, 3)
    assert_same(there, x.contiguous(memory_format=torch.channels_last_3d), tolerance=0)
    assert_same(restore_layout(there, False), x, tolerance=0)


def test_threads_give_the_same():
    x = numbers(3, 100, 60, 70)
    with own_thread_count():
        torch.set_num_threads(5)
        assert torch.equal(restore_layout(to_channels_last(x, 2), False), x)


def test_negations_and_gradients():
    x = torch.randn(1, 20, 16, 16, dtype=torch.complex64).conj().imag
    assert_same(to_channels_last(x, 2), x.contiguous(memory_format=torch.channels_last), tolerance=0)
    y = torch.randn(1, 20, 16, 16, requires_grad=True)
    to_channels_last(y, 2).sum().backward()
    assert torch.equal(y.grad, torch.ones_like(y))
