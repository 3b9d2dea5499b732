"""sample_input: what the model will be called with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._inputs import call


@torch.no_grad()
def shapes_seen(model: nn.Module, sample: Any, wanted: set[nn.Module]) -> dict[nn.Module, list[Tensor]]:
    """Call the model with the sample, and return which inputs of one tensor these modules got, one of each shape."""
    seen: dict[nn.Module, dict[Any, Tensor]] = {}

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if len(inputs) == 1 and isinstance(inputs[0], Tensor):
            key = (inputs[0].shape, inputs[0].stride(), inputs[0].dtype)
            seen.setdefault(module, {})[key] = inputs[0].detach()

    handles = [module.register_forward_pre_hook(note) for module in wanted]
    try:
        call(model, sample, "optimize")
    finally:
        for handle in handles:
            handle.remove()
    return {module: list(inputs.values()) for module, inputs in seen.items()}


@torch.no_grad()
def warm_up(model: nn.Module, sample: Any) -> None:
    """Call the model once, so that the kernels for these shapes are made before the first real call."""
    call(model, sample, "optimize")
