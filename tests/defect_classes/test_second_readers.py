"""What is folded into a producer must not reach those who read the producer's own result."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anchored import After, Function, batch_norm, check, each_kind, every_convolution, lively, make, named


@every_convolution
@named(
    "function",
    {
        "returned too": lambda f, norm, x: (lambda y: (y, norm(y)))(f(x)),
        "added": lambda f, norm, x: (lambda y: y + norm(y))(f(x)),
        "convolved again": lambda f, norm, x: norm(f(x)) + f(x),
        "in place": lambda f, norm, x: (lambda y: (norm(y), y.mul_(2)))(f(x)),
    },
)
def test_batch_norm(anchor, function):
    module, x = make(anchor)
    both = nn.ModuleList([module, batch_norm(anchor)])
    check(After(both, lambda f, x: function(f[0], f[1], x)), (x,))


def of(function: Function) -> Function:
    return lambda f, x: function(f(x))


@each_kind
@named(
    "function",
    {
        "a number": of(lambda y: (y, y * 3)),
        "a constant": of(lambda y: (y, y + torch.full((1,), 3.0))),
        "relu": of(lambda y: (F.relu(y), y)),
        "two activations": of(lambda y: (F.relu(y), torch.tanh(y))),
        "a view": of(lambda y: (F.relu(y), y[:1])),
        "swish": of(lambda y: torch.sigmoid(y) * y + y),
        "relu and a sum": of(lambda y: F.relu(y) + y),
        "the same layer again": lambda f, x: F.relu(f(x)) + f(x),
    },
)
def test_arithmetic_and_activations(anchor, function):
    module, x = make(anchor)
    check(After(module, function), (x,))


def test_weights_that_two_layers_share():
    conv, norm = nn.Conv2d(4, 4, 1), lively(nn.BatchNorm2d(4))
    check(nn.Sequential(conv, norm, nn.ReLU(), conv), (torch.randn(2, 4, 5, 5),))


class Branches(nn.Module):
    """Layers that could be one, of which each result goes its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(6, 4), nn.Linear(6, 4, bias=False), nn.Linear(6, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = self.q(x), self.k(x), self.v(x)
        q += 1
        return q, F.relu(k), k, v


@pytest.mark.parametrize("shape", [(3, 6), (2, 3, 6)])
def test_layers_on_one_input(shape):
    check(Branches(), (torch.randn(3, 6),), (torch.randn(shape),))
