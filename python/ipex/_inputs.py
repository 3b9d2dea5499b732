"""Inputs of a model as users give them: a tensor, a tuple of arguments, or a mapping of keyword arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch


def arguments(inputs: Any, caller: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return them as positional and keyword arguments."""
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, tuple):
        return inputs, {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    raise TypeError(
        f"ipex.{caller}: expected inputs, got {type(inputs).__name__}. "
        "Pass a tensor, a tuple of arguments or a mapping of keyword arguments."
    )


def in_order(module: torch.jit.ScriptModule, inputs: Any, caller: str) -> tuple[Any, ...]:
    """Return the arguments of a ScriptModule's forward in order, defaults filled in."""
    args, kwargs = arguments(inputs, caller)
    filled = list(args)
    for argument in module._c._get_method("forward").schema.arguments[1 + len(args) :]:
        filled.append(kwargs.get(argument.name, argument.default_value))
    return tuple(filled)


def call(module: Callable[..., Any], inputs: Any, caller: str) -> Any:
    """Call the module."""
    args, kwargs = arguments(inputs, caller)
    return module(*args, **kwargs)


def copied(inputs: Any) -> Any:
    """Return inputs of their own for one call, as the model may write to them."""
    return copy.deepcopy(inputs)
