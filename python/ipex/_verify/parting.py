"""The first op at which two models part.

In a graph: optimising keeps the names of values, and a name stands for the same value before and after. So both models
run once more, each value is kept, and the first that differs is the one. Between modules: their results are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._explain.graphs import final_nodes, original_nodes
from .._explain.report import Report
from .._inputs import arguments, call, copied, in_order
from .._load_extension import _C
from .compare import Compared, compare

Tolerance = Callable[[torch.dtype], float]


@dataclass(frozen=True)
class Parting:
    """The first op whose result differs: what it is, where it stands in the source, and by how much it is off."""

    op: str
    place: str
    compared: Compared

    def __str__(self) -> str:
        return f"{self.op}{f' in {self.place}' if self.place else ''}, {self.compared}"


def first_in_graph(
    original: torch.jit.ScriptModule, optimized: torch.jit.ScriptModule, inputs: Any, tolerance: Tolerance
) -> Parting | None:
    """Return the first op at which the graphs part. None where no value that both have differs."""
    # Optimised without a single pass, the original keeps the names that the optimised model has.
    frozen = _C.jit_optimize(original._c, disable=_C.pass_names())
    expected = _C.intermediates(frozen, in_order(original, *arguments(copied(inputs), "verify"), "verify"), False)
    now = {node.loaded_name or node.name: node.name for node in final_nodes(optimized._c) if node.method == "forward"}
    given = _C.intermediates(optimized._c, in_order(optimized, *arguments(copied(inputs), "verify"), "verify"), False)
    actual = {now.get(name, name): value for name, value in given}
    nodes = {node.name: node for node in original_nodes(frozen)}
    for name, value in expected:
        if name not in nodes or name not in actual or actual[name].shape != value.shape:
            continue
        if actual[name].is_floating_point() != value.is_floating_point():
            continue  # handed on in 8 bits: it has a scale that only the ops know
        # In another precision a value inside the model may have another dtype.
        compared = compare(f"%{name}", value, actual[name].to(value.dtype), tolerance(value.dtype))
        if not compared.agrees:
            return Parting(nodes[name].kind, nodes[name].place, compared)
    return None


def first_in_modules(
    original: nn.Module, optimized: nn.Module, inputs: Any, tolerance: Tolerance, report: Report
) -> Parting | None:
    """Return the first submodule whose result differs. None where there is none, or they have other names."""
    # What a batch_norm was folded into gives the batch_norm's results.
    folded = {d.into for d in report.applied if d.into}
    expected = _results(original, inputs)
    actual = dict(_results(optimized, inputs))
    for name, value in expected:
        other = actual.get(name)
        if name in folded or other is None or other.shape != value.shape:
            continue
        compared = compare(name, value, other.to(value.dtype), tolerance(value.dtype))
        if not compared.agrees:
            kind = type(original.get_submodule(name)).__name__
            return Parting(kind, name, compared)
    return None


def _results(model: nn.Module, inputs: Any) -> list[tuple[str, Tensor]]:
    found: list[tuple[str, Tensor]] = []

    def keep(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _args: Any, result: Any) -> None:
            if isinstance(result, Tensor):
                found.append((name, result.detach().clone()))

        return hook

    hooks = [module.register_forward_hook(keep(name)) for name, module in model.named_modules() if name]
    try:
        call(model, copied(inputs), "verify")
    finally:
        for handle in hooks:
            handle.remove()
    return found
