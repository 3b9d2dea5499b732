"""Inputs of a model as users give them, for every call that takes some.

    a tensor                            the one argument
    a tuple or a list                   arguments in order
    a mapping (dict, BatchEncoding)     arguments by name

What the arguments are is the model's to say: tensors, numbers, None, and containers of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ._adapter import adapter_of


def arguments(inputs: Any, caller: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return them as positional and keyword arguments."""
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    got = "None" if inputs is None else type(inputs).__name__
    raise TypeError(
        f"ipex.{caller}: expected inputs, got {got}. "
        "Pass a tensor, a tuple or list of arguments, or a mapping of keyword arguments."
    )


def arguments_of_calls(inputs: Any, caller: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return the arguments of several calls: of a list of tuples or mappings, and of what else stands for one call."""
    if inputs is None:
        return []
    if isinstance(inputs, list) and all(isinstance(one, (tuple, Mapping)) for one in inputs):
        return [arguments(one, caller) for one in inputs]
    return [arguments(inputs, caller)]


def in_order(
    module: torch.jit.ScriptModule, args: tuple[Any, ...], kwargs: dict[str, Any], caller: str
) -> tuple[Any, ...]:
    """Return the arguments of a ScriptModule's forward in order, defaults filled in."""
    adapter = adapter_of(module)
    if adapter is not None:
        return adapter.for_trace(args, kwargs)
    parameters = module._c._get_method("forward").schema.arguments[1:]
    unknown = kwargs.keys() - {parameter.name for parameter in parameters[len(args) :]}
    if unknown or len(args) > len(parameters):
        names = ", ".join(parameter.name for parameter in parameters)
        got = f"{sorted(unknown)[0]} too" if unknown else f"{len(args)} of them"
        raise TypeError(f"ipex.{caller}: expected the arguments of forward, {names}, got {got}.")
    filled = list(args)
    for parameter in parameters[len(args) :]:
        if parameter.name not in kwargs and not parameter.has_default_value():
            raise TypeError(f"ipex.{caller}: expected the argument {parameter.name} of forward, got none. Pass it.")
        filled.append(kwargs.get(parameter.name, parameter.default_value))
    return tuple(filled)


def call(module: Callable[..., Any], inputs: Any, caller: str) -> Any:
    """Call the module."""
    args, kwargs = arguments(inputs, caller)
    return module(*args, **kwargs)


def copied(inputs: Any) -> Any:
    """Return inputs of their own for one call, as the model may write to them."""
    return copy.deepcopy(inputs)
