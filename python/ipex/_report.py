"""What was done with each node of an optimised model, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ._load_extension import _C
from ._script_module import cpp_module


@dataclass(frozen=True)
class Decision:
    """What one pass did with one node of a model."""

    pass_name: str
    node: str
    applied: bool
    reason: str
    method: str = "forward"

    def __str__(self) -> str:
        return f"{'applied ' if self.applied else 'declined'}  {self.pass_name}: {self.node}: {self.reason}"


@dataclass(frozen=True)
class Report:
    """Every decision that was taken about a model. Print it, or go through it."""

    decisions: tuple[Decision, ...]

    @property
    def applied(self) -> tuple[Decision, ...]:
        """The decisions that changed the model."""
        return tuple(d for d in self.decisions if d.applied)

    @property
    def declined(self) -> tuple[Decision, ...]:
        """The decisions to leave a node as it was, with the reason."""
        return tuple(d for d in self.decisions if not d.applied)

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    def __str__(self) -> str:
        return "\n".join(map(str, self.decisions))


def explain(module: torch.nn.Module) -> Report:
    """Return what was done with each part of an optimised module, and why.

    Of `jit_optimize`: with each node; that report is saved with the model. Of `optimize`: with each module.
    """
    report = getattr(module, "__dict__", {}).get("_ipex_report")
    if isinstance(report, Report):
        return report
    return Report(tuple(Decision(*row) for row in _C.explain(cpp_module(module, "explain"))))
