"""What all libraries of models share: which models the zoo takes, and one way to call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

LARGEST = 90e6  # parameters


class LeftOut(Exception):
    """The zoo has no use for a model; the message says why."""


class OnlyTensors(nn.Module):
    """A model as a function of tensors, by position or by these names, that returns a tuple of tensors."""

    def __init__(self, model: nn.Module, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.model, self.names = model, names
        self.eval()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Call the model."""
        result = self.model(**dict(zip(self.names, inputs))) if self.names else self.model(*inputs)
        return tuple(tensors(result))


def tensors(result: Any) -> list[Tensor]:
    """Flatten what a model returns; what is no tensor is left out."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, Mapping):
        result = tuple(result.values())
    if isinstance(result, (list, tuple)):
        return [tensor for value in result for tensor in tensors(value)]
    return []


def count_parameters(model: nn.Module) -> int:
    """Return how many numbers a model has learnt."""
    return sum(parameter.numel() for parameter in model.parameters())
