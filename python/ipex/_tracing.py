"""Traces of modules, those that hold for other values too, and whether they compute what the model does."""

from __future__ import annotations

import copy
import inspect
import warnings
from typing import Any

import torch
from torch import Tensor

from ._adapter import AdaptedCall, Adapter, named, structure_of_argument
from ._structure import Structure, is_plain, taken_apart, with_numbers_of
from ._tolerance import computed_in, tolerance_for
from ._torch_internals import TracerWarning, argument_names_of, trace


@torch.no_grad()
def traced(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], caller: str
) -> torch.jit.ScriptModule:
    """Return the trace of a module, which is called as the module is and gives what that gives.

    Its graph takes and gives tensors alone: where the module does not, calls from Python go through an adapter.
    """
    signature = inspect.signature(model.forward)
    try:
        by_names = named(signature, args, kwargs)
    except TypeError as error:
        names = ", ".join(signature.parameters)
        raise TypeError(
            f"ipex.{caller}: expected example inputs for {type(model).__name__}.forward({names}), got "
            f"{_count(args, kwargs)}: {error}. Pass a tensor, a tuple or list of arguments, or a mapping by name."
        ) from None
    try:
        arguments = {name: structure_of_argument(name, value) for name, value in by_names.items()}
    except TypeError as error:
        raise TypeError(
            f"ipex.{caller}: expected example inputs for {type(model).__name__}.forward, of tensors, numbers and "
            f"containers of them, got: {error}. {_ADVICE_ON_CACHES if 'Cache' in str(error) else _ADVICE}"
        ) from None
    given = {name: value for name, (structure, value) in arguments.items() if structure is None or value}
    if not given:
        raise TypeError(f"ipex.{caller}: expected a tensor in the example inputs, got none. Pass one.")
    _warn_of_hooks(model, caller)
    taken = _Taken(model, {name: structure for name, (structure, _) in arguments.items()}, len(args))
    known = argument_names_of(model.forward)
    by_name = all(name in known for name in given)
    example: dict[str, Any] = {"example_kwarg_inputs": given} if by_name else {"example_inputs": tuple(given.values())}
    taken.names = tuple(given)
    try:
        script = trace(taken.module, strict=False, **example)
    except _NotTensors as error:
        raise TypeError(
            f"ipex.{caller}: expected results of {type(model).__name__} made of tensors and containers of them, got "
            f"a {error}. Return tensors, or leave it out by an argument."
        ) from None
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0].rstrip(". ")
        raise RuntimeError(
            f"ipex.{caller}: expected {type(model).__name__} to run under torch.jit.trace with these inputs, got "
            f"{type(error).__name__}: {first_line}. Where it runs without, ipex.optimize(model) needs no trace."
        ) from error
    copies = copy.deepcopy((args, kwargs))
    expected = model(*copies[0], **copies[1])
    result = None
    if taken.result is not None:
        eager = taken_apart(expected, [])
        result = with_numbers_of(eager, taken.result)
        if result is None:
            places = dict(taken.result.leaves("result"))
            place = next((place for place, _ in eager.leaves("result") if place not in places), "result")
            raise ValueError(
                f"ipex.{caller}: expected {type(model).__name__} to give the same when it is traced, got something "
                f"else at {place}. Leave that out by an argument, as use_cache=False does for caches."
            )
    if result is not None or not by_name or any(structure is not None for structure, _ in arguments.values()):
        adapter = Adapter(signature, {name: structure for name, (structure, _) in arguments.items()}, result)
        script.__dict__["_compiled_call_impl"] = AdaptedCall(script._call_impl, adapter)
    copies = copy.deepcopy((args, kwargs))
    found = difference(expected, script(*copies[0], **copies[1]))
    if found is not None:
        warnings.warn(
            f"ipex.{caller}: expected the trace of {type(model).__name__} to compute what the model does, but {found}. "
            "A trace can't hold what draws random numbers, keeps a state, or depends on values of tensors: script the "
            "model, or call ipex.optimize(model).",
            stacklevel=5,
        )
    return script


def _count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return f"{len(args)} arguments" if args else f"the names {', '.join(map(repr, kwargs))}" if kwargs else "none"


_ADVICE = "Take tensors, numbers, and containers of them."
_ADVICE_ON_CACHES = "Leave the cache out; ipex.llm.optimize is for generation with one."


def _warn_of_hooks(model: torch.nn.Module, caller: str) -> None:
    """Warn of hooks that calls of the trace do not make. Those of torch and transformers compute: that is traced."""
    found = [
        f"{getattr(hook, '__qualname__', type(hook).__qualname__)} of {name or 'the model'}"
        for name, module in model.named_modules()
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
        if _module_of(hook).partition(".")[0] not in ("torch", "transformers")
    ]
    if found:
        warnings.warn(
            f"ipex.{caller}: expected a module without forward hooks, got {', '.join(found[:3])}"
            f"{', ...' if len(found) > 3 else ''}. Calls of the trace don't call them; what they computed with tensors "
            "while it was made is in it. Remove them, or let the module return what they keep.",
            stacklevel=6,
        )


def _module_of(hook: Any) -> str:
    function = getattr(hook, "func", hook)  # of a partial
    return getattr(function, "__module__", None) or type(function).__module__


class _NotTensors(Exception):
    """The result has something that a trace can't give."""


class _Taken:
    """A module to trace with tensors: hooks of a copy give it its own arguments, and take its result apart."""

    def __init__(self, model: torch.nn.Module, arguments: dict[str, Structure | None], positional: int) -> None:
        self._arguments = arguments
        self._positional = positional
        self.names: tuple[str, ...] = ()
        self.result: Structure | None = None
        module = object.__new__(type(model))
        module.__dict__ = dict(model.__dict__)
        for hooks in [name for name in module.__dict__ if name.startswith("_forward_") and "hooks" in name]:
            module.__dict__[hooks] = copy.copy(module.__dict__[hooks])
        module.__dict__.pop("_compiled_call_impl", None)
        module.register_forward_pre_hook(self._as_called, prepend=True, with_kwargs=True)
        module.register_forward_hook(self._take_apart)
        self.module = module

    def _as_called(self, _module: Any, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = dict(zip(self.names, args)) | kwargs
        values = {}
        for name, structure in self._arguments.items():
            values[name] = given[name] if structure is None else structure.of(iter(given.get(name, ())))
        names = list(values)
        return (
            tuple(values[name] for name in names[: self._positional]),
            {name: values[name] for name in names[self._positional :]},
        )

    def _take_apart(self, _module: Any, _args: Any, result: Any) -> Any:
        if is_plain(result):
            return result
        tensors: list[Tensor] = []
        try:
            self.result = taken_apart(result, tensors)
        except TypeError as error:
            raise _NotTensors(str(error)) from None
        if not tensors:
            raise _NotTensors(f"{type(result).__name__} without tensors")
        return tuple(tensors)


def trace_for_all_values(module: torch.nn.Module, inputs: tuple[Any, ...]) -> Any:
    """Return the trace of a module. Raises where a value that depends on the inputs becomes a constant in it.

    torch says so in a warning. The checks in its own modules cause it too; they only hold for the inputs at hand.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=TracerWarning, module=r"torch\.(?!jit)")
        traced = trace(module, inputs)
    for warning in caught:
        if issubclass(warning.category, TracerWarning):
            first_sentence = str(warning.message).split(". ")[0]
            raise ValueError(f"the trace would hold for these inputs alone: {first_sentence}")
    return traced


def difference(expected: Any, actual: Any, low: torch.dtype | None = None) -> str | None:
    """Return how two results differ, if they do. `low` is the dtype that layers compute in, where it is another one."""
    tensors: list[Tensor] = []
    others: list[Tensor] = []
    if taken_apart(expected, tensors) != taken_apart(actual, others):
        return "its trace gives another structure of results"
    for e, a in zip(tensors, others):
        if (e.shape, e.dtype) != (a.shape, a.dtype):
            return "its trace gives results of another shape or dtype"
        if not _is_close(e, a, tolerance_for(e.dtype, computed_in(low or e.dtype))):
            return "its trace gives other numbers"
    return None


def _is_close(expected: Tensor, actual: Tensor, tolerance: float) -> bool:
    if not expected.is_floating_point():
        return torch.equal(expected, actual)
    finite = expected[torch.isfinite(expected)]
    scale = max(finite.abs().max().item() if finite.numel() else 0.0, 1e-3)
    return torch.allclose(actual.double(), expected.double(), rtol=0, atol=tolerance * scale, equal_nan=True)
