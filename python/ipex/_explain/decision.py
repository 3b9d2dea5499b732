"""What one pass, or one optimisation of `ipex.optimize`, did with one part of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._load_extension import _C


@dataclass(frozen=True)
class Decision:
    """What one pass did with one node of a model.

    `name` is that of the node's result, `module` the one that the user wrote. `into` is what stands for the node now: a
    node, by name, or the module that `ipex.optimize` made.
    """

    pass_name: str
    node: str
    applied: bool
    reason: str
    method: str = "forward"
    name: str = ""
    module: str = ""
    into: str = ""

    def __str__(self) -> str:
        return f"{'applied ' if self.applied else 'declined'}  {self.pass_name}: {self.node}: {self.reason}"


def decisions_of(cpp: Any) -> tuple[Decision, ...]:
    """Return what jit_optimize decided about a C++ module that it returned."""
    return tuple(Decision(*row) for row in _C.explain(cpp))
