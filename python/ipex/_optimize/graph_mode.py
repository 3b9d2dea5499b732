"""graph_mode: calls run a graph of the whole model.

The model is traced, and the optimised trace compared with the model itself on the sample. Where it can't be traced, or
computes something else, torch.compile runs it with our passes as backend. Where that fails too, it stays eager. The
report says which. A call that the graph is not for is the model's own; the log says why, once.
"""

from __future__ import annotations

import logging
import warnings
import weakref
from typing import Any

import torch
from torch import Tensor, nn

from .._inputs import arguments
from .._jit_optimize import jit_optimize
from .._torch_internals import is_tracing
from .._tracing import difference, trace_for_all_values
from .notes import Notes

KNOB = "graph_mode"
_log = logging.getLogger("ipex.graph_mode")


class GraphCall:
    """What nn.Module.__call__ asks first: runs the graph where it stands for the call, and else the model."""

    def __init__(self, model: nn.Module, graph: Any, sample: tuple[Any, ...] | None) -> None:
        self._model = weakref.ref(model)
        self._graph = graph
        self._kinds = None if sample is None else [_kind(value) for value in sample]
        self._constants = [] if sample is None else _constants(model)
        self._said: set[str] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model = self._model()
        assert model is not None
        if _is_being_captured():
            return model._call_impl(*args, **kwargs)
        reason = self._why_not(model, args, kwargs)
        if reason is not None:
            if reason not in self._said:
                self._said.add(reason)
                _log.warning("ipex.optimize: a call of a model in graph_mode is eager: %s", reason)
            return model._call_impl(*args, **kwargs)
        if not all(
            held.get(name) is value and _version(value) == version for held, name, value, version in self._constants
        ):
            model.__dict__.pop("_compiled_call_impl", None)
            warnings.warn(
                "ipex.optimize: expected the parameters that the graph was made with, got others. The model is eager "
                "from now on. Optimise it again.",
                stacklevel=3,
            )
            return model._call_impl(*args, **kwargs)
        return self._graph(*args, **kwargs)

    def _why_not(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        if model.training:
            return "it is in training mode. Call eval()"
        if torch.is_grad_enabled():
            return "gradients may be wanted. Call it under torch.no_grad()"
        if model._forward_hooks or model._forward_pre_hooks or model._backward_hooks:
            return "it has hooks, which a graph would not call"
        if self._kinds is not None and (kwargs or [_kind(value) for value in args] != self._kinds):
            return "its arguments are of another number, rank or dtype than those of sample_input, or named"
        return None


def _constants(model: nn.Module) -> list[tuple[dict[str, Any], str, Tensor, int]]:
    """Where the tensors stand that a trace has as constants, and their versions."""
    return [
        (held, name, value, _version(value))
        for module in model.modules()
        for held in (module._parameters, module._buffers)
        for name, value in held.items()
        if value is not None
    ]


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _is_being_captured() -> bool:
    return torch.compiler.is_compiling() or is_tracing()


def _kind(value: Any) -> Any:
    """What a trace takes for granted of an argument."""
    if isinstance(value, Tensor):
        return value.dim(), value.dtype, value.device
    return value


def run_as_graph(model: nn.Module, sample: Any, notes: Notes, *, dtype: torch.dtype | None) -> None:
    """Let calls of the model run a graph."""
    if sample is None:
        _compile(model, notes, "there is no sample_input to trace it with")
        return
    args, kwargs = arguments(sample, "optimize")
    if kwargs:
        _compile(model, notes, "sample_input has keyword arguments", kwargs=kwargs)
        return
    reason = _trace(model, args, dtype)
    if reason is None:
        notes.applied(KNOB, "the model", "traced; the trace gives what eager gives for sample_input")
    else:
        _compile(model, notes, reason, args)


def _trace(model: nn.Module, args: tuple[Any, ...], dtype: torch.dtype | None) -> str | None:
    if not all(isinstance(value, Tensor) for value in args):
        return "sample_input holds something else than tensors"
    try:
        with torch.no_grad():
            expected = model(*_copies(args))
            low = dtype if dtype in (torch.bfloat16, torch.float16) else None
            graph = jit_optimize(trace_for_all_values(model, _copies(args)), dtype=low)
            for _ in range(2):  # TorchScript compiles again after its first call
                found = difference(expected, graph(*_copies(args)), low)
                if found is not None:
                    return found
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        return f"tracing fails: {type(error).__name__}: {first_line}"
    model.__dict__["_compiled_call_impl"] = GraphCall(model, graph, args)
    return None


def _compile(
    model: nn.Module, notes: Notes, why: str, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None
) -> None:
    compiled = torch.compile(model._call_impl, backend="ipex")
    try:
        if args is not None or kwargs is not None:
            with torch.no_grad():
                positional, named = args or (), kwargs or {}
                found = difference(model(*positional, **named), compiled(*positional, **named))
            if found is not None:
                raise ValueError(found)
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        notes.failed(KNOB, f"The model stays eager: {why}; torch.compile fails: {type(error).__name__}: {first_line}")
        return
    model.__dict__["_compiled_call_impl"] = GraphCall(model, compiled, None)
    notes.applied(KNOB, "the model", f"run by torch.compile: {why}")


def _copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.clone() for value in args)
