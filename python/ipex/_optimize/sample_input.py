"""sample_input: what the model will be called with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def arguments_of(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the sample as positional and keyword arguments."""
    if isinstance(sample, Mapping):
        return (), dict(sample)
    if isinstance(sample, (tuple, list)):
        return tuple(sample), {}
    if isinstance(sample, Tensor):
        return (sample,), {}
    raise TypeError(
        "ipex.optimize: expected a tensor, a tuple of arguments or a mapping of keyword arguments in sample_input, "
        f"got {type(sample).__name__}."
    )


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
        args, kwargs = arguments_of(sample)
        model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return {module: list(inputs.values()) for module, inputs in seen.items()}


@torch.no_grad()
def warm_up(model: nn.Module, sample: Any) -> None:
    """Call the model once, so that the kernels for these shapes are made before the first real call."""
    args, kwargs = arguments_of(sample)
    model(*args, **kwargs)
