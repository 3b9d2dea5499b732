"""The same model, run differently: with gradients, with other threads, by another executor, again."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from anchored import lively, trace
from support import assert_same


class OneOfEverything(nn.Module):
    """Convolutions with batch_norm, an LSTM, a linear layer, a product."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.up = nn.Conv2d(3, 8, 3), lively(nn.BatchNorm2d(8)), nn.ConvTranspose2d(8, 8, 2)
        self.lstm, self.linear = nn.LSTM(7, 6, batch_first=True), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.conv(x)))
        y = torch.sigmoid(self.up(y)).flatten(1, 2)
        y = self.lstm(y)[0]
        return torch.matmul(F.gelu(self.linear(y) + y), y.transpose(1, 2))


@pytest.fixture(scope="module")
def models():
    model, x = OneOfEverything().eval(), torch.randn(2, 3, 8, 8)
    return model, x, ipex.jit_optimize(trace(model, x))


def test_grad_enabled(models):
    model, x, optimized = models
    assert torch.is_grad_enabled()
    for _ in range(3):
        assert_same(optimized(x).detach(), model(x).detach())


def test_gradients_of_the_input(models):
    model, x, optimized = models
    for _ in range(3):
        ours, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
        optimized(ours).sum().backward()
        model(eager).sum().backward()
        assert_same(ours.grad, eager.grad)


def test_inference_mode(models):
    model, x, optimized = models
    with torch.inference_mode():
        assert_same(optimized(x), model(x))


def test_thread_count_changed_after_packing(models):
    model, x, optimized = models
    threads = torch.get_num_threads()
    try:
        with torch.no_grad():
            for count in (2, 1, 3, 1):
                torch.set_num_threads(count)
                assert_same(optimized(x), model(x))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("executor_optimizes", [True, False])
def test_first_and_later_calls_give_the_same_bits(executor_optimizes):
    model, x = OneOfEverything().eval(), torch.randn(2, 3, 8, 8)
    optimized = ipex.jit_optimize(trace(model, x))
    with torch.no_grad(), torch.jit.optimized_execution(executor_optimizes):
        first = optimized(x)
        assert_same(first, model(x))
        for _ in range(4):
            assert torch.equal(optimized(x), first)
        optimized(torch.randn(1, 3, 8, 8))
        assert torch.equal(optimized(x), first)
