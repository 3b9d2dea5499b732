"""The arguments and results of a model, and those of its trace, which are tensors alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._structure import Structure, is_plain, taken_apart


@dataclass(frozen=True)
class Adapter:
    """How a trace is called as its model is, and gives what the model gives.

    `arguments` are those that the model was traced with, each with its structure; None where the trace takes it as it
    is. `result` is the structure of the result, None where the trace gives it as it is. What is no tensor is a constant
    of the trace.
    """

    signature: inspect.Signature
    arguments: dict[str, Structure | None]
    result: Structure | None

    def for_trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments of the trace for a call of the model."""
        try:
            given = named(self.signature, args, kwargs)
        except TypeError as error:
            raise TypeError(f"ipex: expected the arguments of forward, got others: {error}.") from None
        found = []
        for name, structure in self.arguments.items():
            value = given.pop(name, self._default(name))
            if structure is None:
                if value is None:
                    raise TypeError(f"ipex: expected {name}, which the model was traced with, got none. Pass it.")
                found.append(value)
                continue
            tensors: list[Tensor] = []
            actual = taken_apart(value, tensors, name)
            if actual != structure:
                raise ValueError(_difference(name, structure, actual))
            if tensors:
                found.append(tuple(tensors))
        for name, value in given.items():
            default = self._default(name)
            if isinstance(value, Tensor) or (value is not default and value != default):
                raise TypeError(
                    f"ipex: expected the arguments that the model was traced with, {', '.join(self.arguments)}, got "
                    f"{name} too. Optimise the model with it among the example inputs."
                )
        return tuple(found)

    def from_trace(self, result: Any) -> Any:
        """Return the model's result, of the trace's."""
        return result if self.result is None else self.result.of(iter(result))

    def _default(self, name: str) -> Any:
        parameter = self.signature.parameters.get(name)
        return None if parameter is None or parameter.default is parameter.empty else parameter.default


class AdaptedCall:
    """What nn.Module.__call__ asks first: calls a trace as its model is called."""

    def __init__(self, call: Callable[..., Any], adapter: Adapter) -> None:
        self._call = call
        self.adapter = adapter

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.adapter.from_trace(self._call(*self.adapter.for_trace(args, kwargs)))


def adapter_of(module: torch.nn.Module) -> Adapter | None:
    """Return the adapter of a trace, if it has one."""
    call = module.__dict__.get("_compiled_call_impl")
    return call.adapter if isinstance(call, AdaptedCall) else None


def named(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, in the order of the signature."""
    found: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found |= {f"{name}_{i}": one for i, one in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[name] = value
    return found


def structure_of_argument(name: str, value: Any) -> tuple[Structure | None, Any]:
    """Return the structure of an argument, None if a trace takes it as it is, and what the trace takes."""
    if is_plain(value):
        return None, value
    if "Cache" in type(value).__name__:  # which the call would write to
        raise TypeError(f"{type(value).__name__} at {name}")
    tensors: list[Tensor] = []
    return taken_apart(value, tensors, name), tuple(tensors)


def _difference(name: str, expected: Structure, actual: Structure) -> str:
    places = dict(actual.leaves(name))
    for place, leaf in expected.leaves(name):
        other = places.get(place)
        if other != leaf:
            return (
                f"ipex: expected {_text(leaf)} in {place}, as in the example inputs, got {_text(other)}. What is no "
                "tensor is a constant of the optimised model: optimise it with this value."
            )
    return f"ipex: expected {name} with the parts that the example has, got others. Optimise the model with these."


def _text(leaf: Structure | None) -> str:
    return "nothing" if leaf is None else "a tensor" if leaf.kind is Tensor else repr(leaf.constant)
