"""Rotary embeddings with two sets of frequencies, for short texts and for long ones, by ops that a graph can hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ._attention import CannotCapture

KIND = "longrope"  # as transformers calls them


class _Chosen(nn.Module):
    """What such an embedding computes, without a branch and without a write to what it keeps."""

    def __init__(self, own: Any) -> None:
        super().__init__()
        self.most, self.scaling = own.config.rope_parameters["original_max_position_embeddings"], own.attention_scaling
        x = torch.zeros(1)

        def frequencies(last: int) -> Tensor:
            own(x, torch.tensor([[last]]))
            kept: Tensor = own.inv_freq.clone()
            return kept

        self.of_long, self.of_short = frequencies(self.most), frequencies(0)
        for last in (self.most, self.most - 1):
            positions = torch.tensor([[1, last]])
            for found, expected in zip(self(x, positions), own(x, positions)):
                if not torch.allclose(found, expected):
                    raise CannotCapture(f"its rotary embedding ({KIND}) depends on the length in a way of its own")

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = torch.where(position_ids.max() >= self.most, self.of_long, self.of_short)
        half = position_ids.unsqueeze(-1).float() * frequencies
        angles = torch.cat((half, half), -1)
        return (angles.cos() * self.scaling).to(x.dtype), (angles.sin() * self.scaling).to(x.dtype)


@contextmanager
def chosen_by_length(model: nn.Module) -> Iterator[None]:
    """While it lasts, such a model chooses its frequencies by an op."""
    found = [item for item in model.named_modules() if getattr(item[1], "rope_type", None) == KIND]
    chosen = [_Chosen(module) for _, module in found]

    def put(modules: list[Any]) -> None:
        for (name, _), module in zip(found, modules):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, module)

    put(chosen)
    try:
        yield
    finally:
        put([module for _, module in found])
