"""Which module reads what which other one computes: proven, or not known.

The model's forward is traced symbolically. What decides about the flow at run time can't be traced, and then nothing is
proven. Optional arguments are traced given and left out.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn

MOST_VARIANTS = 16


class DataFlow:
    """The flow through a model, in every variant of its optional arguments."""

    def __init__(self, model: nn.Module) -> None:
        self.reason: str | None = None  # why nothing is known
        self._graphs: list[fx.Graph] = []
        try:
            with _attributes_restored(model):
                for given in _variants(model.forward):
                    self._graphs.append(_Tracer().trace(model, concrete_args=given or None))
        except Exception as error:
            first_line = (str(error).splitlines() or [""])[0]
            self.reason = f"torch.fx can't trace the model: {type(error).__name__}: {first_line}"

    def call_of(self, graph: fx.Graph, name: str) -> list[fx.Node]:
        """Return the calls of a module."""
        return [n for n in graph.nodes if n.op == "call_module" and n.target == name]

    def producers(self, reader: str) -> set[str]:
        """Return the modules whose results this one reads, over all calls of it."""
        found = set()
        for graph in self._graphs:
            for call in self.call_of(graph, reader):
                source = call.args[0] if call.args else None
                if isinstance(source, fx.Node) and source.op == "call_module":
                    found.add(str(source.target))
        return found

    def why_not_a_pair(self, first: str, second: str) -> str | None:
        """Return why `second` may not take over what `first` computes, if there is a reason."""
        if self.reason is not None:
            return self.reason
        for graph in self._graphs:
            firsts, seconds = self.call_of(graph, first), self.call_of(graph, second)
            if not firsts and not seconds:
                continue
            if len(firsts) != 1 or len(seconds) != 1:
                return f"{first} is called {len(firsts)} times and {second} {len(seconds)} times"
            if seconds[0].args[:1] != (firsts[0],):
                return f"{second} reads another value in some call"
            if set(firsts[0].users) != {seconds[0]}:
                return f"the result of {first} has another reader"
            for name in (first, second):
                if any(n.op == "get_attr" and str(n.target).startswith(name + ".") for n in graph.nodes):
                    return f"parameters of {name} are read elsewhere"
        return None

    def reads_parameters_of(self, name: str) -> bool:
        """Whether something but the module itself is known to read its parameters."""
        return any(
            n.op == "get_attr" and str(n.target).startswith(name + ".") for graph in self._graphs for n in graph.nodes
        )

    def readers_of_one_value(self, names: set[str]) -> list[list[str]]:
        """Return the groups of these modules that read the same value, once each, in every variant."""
        if self.reason is not None or not self._graphs:
            return []
        groups_by_graph = []
        for graph in self._graphs:
            by_value: dict[Any, list[str]] = {}
            for call in graph.nodes:
                alone = call.op == "call_module" and call.target in names and len(call.args) == 1
                if alone and not call.kwargs and len(self.call_of(graph, call.target)) == 1:
                    by_value.setdefault(call.args[0], []).append(str(call.target))
            groups_by_graph.append([tuple(group) for group in by_value.values() if len(group) > 1])
        return [list(group) for group in groups_by_graph[0] if all(group in groups for groups in groups_by_graph)]


class _Tracer(fx.Tracer):
    """Modules without children are called, not entered, whoever wrote them."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return next(m.children(), None) is None or super().is_leaf_module(m, module_qualified_name)


def _variants(forward: Any) -> Iterator[dict[str, Any]]:
    """Yield the optional arguments that are to be traced as they are; the others are symbolic."""
    choices: list[list[tuple[str, Any]]] = []
    symbolic = object()
    for name, parameter in inspect.signature(forward).parameters.items():
        if parameter.default is None:
            choices.append([(name, None), (name, symbolic)])
        elif isinstance(parameter.default, bool):
            choices.append([(name, False), (name, True)])
    if 2 ** len(choices) > MOST_VARIANTS:
        raise ValueError(f"expected at most {MOST_VARIANTS} ways to call it, got {2 ** len(choices)}")
    for variant in itertools.product(*choices):
        yield {name: value for name, value in variant if value is not symbolic}


@contextmanager
def _attributes_restored(model: nn.Module) -> Iterator[None]:
    """Undo what a forward leaves in attributes while it runs on symbols."""
    before = [(module, dict(module.__dict__)) for module in model.modules()]
    try:
        with torch.no_grad():
            yield
    finally:
        for module, attributes in before:
            now = module.__dict__
            for name in set(now) - set(attributes):
                del now[name]
            now.update({name: value for name, value in attributes.items() if now.get(name) is not value})
