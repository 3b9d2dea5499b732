"""`torch.compile(model, backend="ipex")`: the graphs that Dynamo finds go through `jit_optimize`.

A graph is traced at its first call, with its parameters as constants, and its result compared with the graph's own.
Dynamo has one graph for all modules of a class, and calls it with the parameters of each: each gets a trace of its own.
A graph runs as it is where gradients are wanted, where it can't be traced, or where the trace computes something else;
the log says why, once.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ._jit_optimize import jit_optimize
from ._tracing import difference, trace_for_all_values

_log = logging.getLogger("ipex.compile")

# Of one set of parameters: they were written to, or a number that is a constant in the trace is another one.
_MOST_TRACES = 4


def ipex(graph: fx.GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
    """Return what runs this graph. Its name is the backend's."""
    return _Compiled(graph, example_inputs)


@dataclass
class _Trace:
    """What stands for the graph while its constants have these values: a trace, or None for the graph itself."""

    constants: list[float]
    traced: Callable[..., Any] | None
    parameters: list[weakref.ref[Any]]  # each forgets the trace when it dies
    count: int = 1


class _Compiled:
    """A graph of Dynamo's, and an optimised trace for each set of parameters that it is called with."""

    def __init__(self, graph: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        self._graph = graph
        is_number = _numbers(graph)
        is_fixed = [i in is_number or _is_fixed(value) for i, value in enumerate(example_inputs)]
        self._numbers = is_number
        self._varying = [i for i, fixed in enumerate(is_fixed) if not fixed]
        self._fixed = [i for i, fixed in enumerate(is_fixed) if fixed]
        self._traces: dict[tuple[int, ...], _Trace] = {}
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
            self._say("gradients are wanted. Call it under torch.no_grad()")
            return self._graph(*inputs)
        fixed = [(i, inputs[i]) for i in self._fixed if isinstance(inputs[i], Tensor)]
        key = tuple(id(x) for i, x in fixed if i not in self._numbers)
        # A parameter that was written to is not the constant in the trace.
        constants = [x.item() if i in self._numbers else _version(x) for i, x in fixed]
        trace = self._traces.get(key)
        if trace is None or (trace.constants != constants and trace.count <= _MOST_TRACES):
            trace = self._trace_of(key, constants, [x for i, x in fixed if i not in self._numbers], inputs)
        if trace.traced is None or trace.constants != constants:
            return self._graph(*inputs)
        return trace.traced(*[inputs[i] for i in self._tensors(inputs)])

    def _tensors(self, inputs: Sequence[Any]) -> list[int]:
        return [i for i in self._varying if isinstance(inputs[i], Tensor)]

    def _trace_of(
        self, key: tuple[int, ...], constants: list[float], parameters: list[Tensor], inputs: Sequence[Any]
    ) -> _Trace:
        """Return the trace for these parameters, made anew where there is none for their values."""
        with self._lock:
            before = self._traces.get(key)
            if before is not None and before.constants == constants:
                return before  # by another thread
            count = 1 if before is None else before.count + 1
            traced = None
            if count > _MOST_TRACES:
                self._say(f"its parameters, or numbers that it is called with, changed {_MOST_TRACES} times")
            else:
                traced = self._traced(inputs)
            held = [weakref.ref(x, lambda _: self._traces.pop(key, None)) for x in parameters]
            self._traces[key] = _Trace(constants, traced, held, count)
            return self._traces[key]

    @torch.no_grad()
    def _traced(self, inputs: Sequence[Any]) -> Callable[..., Any] | None:
        try:
            varying = self._tensors(inputs)
            sizes = _sizes_of_inputs(self._graph)
            module = _OfVarying(self._graph, inputs, varying, self._numbers, sizes).eval()
            given = tuple(inputs[i] for i in varying)
            if not given:
                raise ValueError("it has no input")
            traced = jit_optimize(trace_for_all_values(module, _copies(given)))
            expected = self._graph(*[x.clone() if i in varying else x for i, x in enumerate(inputs)])
            for _ in range(2):  # TorchScript compiles again after its first call
                found = difference(tuple(expected), tuple(traced(*_copies(given))))
                if found is not None:
                    raise ValueError(found)
        except Exception as error:
            first_line = (str(error).splitlines() or [""])[0]
            self._say(f"{type(error).__name__}: {first_line}")
            return None
        return traced

    def _say(self, reason: str) -> None:
        if reason not in self._said:
            self._said.add(reason)
            _log.warning("ipex: a graph of torch.compile runs as it is: %s", reason)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


class _OfVarying(torch.nn.Module):
    """The graph as a function of what varies; sizes are asked of the tensors that have them."""

    def __init__(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        varying: list[int],
        numbers: set[int],
        sizes: dict[int, tuple[int, int]],
    ) -> None:
        super().__init__()
        self._call, self._varying, self._sizes = graph, varying, sizes
        self._inputs: list[Any] = [
            _Number(x) if i in numbers else x.detach() if isinstance(x, Tensor) else x for i, x in enumerate(inputs)
        ]

    def forward(self, *given: Tensor) -> Any:
        inputs = list(self._inputs)
        for i, value in zip(self._varying, given):
            inputs[i] = value
        for i, (tensor, dimension) in self._sizes.items():
            inputs[i] = inputs[tensor].size(dimension)
        return self._call(*inputs)


class _Number:
    """A tensor of one number, of which the graph asks for the number: the tracer takes it for a constant."""

    def __init__(self, tensor: Tensor) -> None:
        self._value = tensor.item()

    def item(self) -> float:
        return self._value


def _is_fixed(value: Any) -> bool:
    """Whether Dynamo lifted it out of a module: a parameter, a buffer, a packed weight."""
    if isinstance(value, Tensor):
        return isinstance(value, torch.nn.Parameter) or hasattr(value, "_dynamo_static_input_type")
    return not isinstance(value, (int, float, torch.SymInt, torch.SymFloat))


def _numbers(graph: fx.GraphModule) -> set[int]:
    """Which inputs are numbers of Python's, that Dynamo hands over as tensors."""
    arguments = [node.meta.get("grapharg") for node in graph.graph.nodes if node.op == "placeholder"]
    return {i for i, argument in enumerate(arguments) if getattr(argument, "pass_arg_as_tensor", False)}


def _sizes_of_inputs(graph: fx.GraphModule) -> dict[int, tuple[int, int]]:
    """Which inputs are the sizes of others: the input, and the tensor and dimension."""
    values = [node.meta.get("example_value") for node in graph.graph.nodes if node.op == "placeholder"]
    found = {}
    for i, value in enumerate(values):
        if isinstance(value, torch.SymInt):
            places = [
                (j, dimension)
                for j, tensor in enumerate(values)
                if isinstance(tensor, Tensor)
                for dimension, size in enumerate(tensor.shape)
                if isinstance(size, torch.SymInt) and size.node.expr == value.node.expr
            ]
            if not places:
                raise ValueError(f"expected the size {value} to be that of an input")
            found[i] = places[0]
    return found


def _copies(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.clone() for x in tensors)
