"""Writes to what an op gives back, though its schema says that it gives something new."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import kinds

OP = "ipex::lies_in"
IDENTITIES = {
    "type_as": lambda x: x.type_as(x * 2),
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "sum_to_size": lambda x: x.sum_to_size(x.size()),
    "einsum": lambda x: torch.einsum("ij->ij", x),
    "atleast_2d": torch.atleast_2d,
    "dequantize": torch.dequantize,
}


class Zeroed(nn.Module):
    """All that is read of the written tensor is what such an op gave of it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.identity = IDENTITIES[name]

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x)
        z = self.identity(y)
        y.zero_()
        return F.gelu(z) + 1


class Stored(nn.Module):
    """The attribute is read once the call is over, and torch.jit.freeze drops the write."""

    def __init__(self) -> None:
        super().__init__()
        self.state = torch.zeros(1)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        self.state = F.dropout(y, 0.5, False)
        y.relu_()
        return x


@pytest.mark.parametrize("name", IDENTITIES)
def test_a_write_is_seen(name):
    """Traced and called without ipex, most of these return gelu(relu(x)) + 1."""
    x = torch.randn(4, 4)
    with torch.no_grad():
        model = ipex.jit_optimize(torch.jit.trace(Zeroed(name).eval(), x))
        for _ in range(3):  # TorchScript optimises what it has seen twice
            torch.testing.assert_close(model(x), torch.ones(4, 4))


def test_a_write_to_what_an_attribute_keeps_is_seen():
    model, x = Stored().eval(), torch.randn(4, 4)
    optimized = ipex.jit_optimize(torch.jit.script(model))
    with torch.no_grad():
        model(x)
        optimized(x)
    assert optimized.state.min() == 0
    torch.testing.assert_close(optimized.state, model.state)


class Classifier(nn.Module):
    """As in AlexNet: what is overwritten before dropout, or lies elsewhere, needs no word."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(64, 8),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return y.type_as(x)


class Residual(nn.Module):
    """In eval mode dropout is its input: nothing is told of what goes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 4), nn.Dropout()

    def forward(self, x: Tensor) -> Tensor:
        y = self.dropout(self.linear(x))
        y += x
        return y


@pytest.mark.parametrize(
    ("model", "shape"), [(Classifier(), (2, 3, 6, 6)), (Residual(), (2, 4))], ids=["read", "dropout"]
)
def test_nothing_is_told_where_nothing_is_hidden(model, shape):
    x = torch.randn(shape)
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model.eval(), x))
        torch.testing.assert_close(optimized(x), model(x))
    assert kinds(optimized)[OP] == kinds(optimized)["aten::dropout"] == 0
