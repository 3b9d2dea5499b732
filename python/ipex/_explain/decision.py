"""What one pass, or one optimisation of `ipex.optimize`, did with one part of a model."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Decision:
    """What one pass did with one node of a model."""

    pass_name: str
    node: str
    applied: bool
    reason: str
    method: str = "forward"
    into: str = ""  # the module that does it now, where there is another one

    def __str__(self) -> str:
        return f"{'applied ' if self.applied else 'declined'}  {self.pass_name}: {self.node}: {self.reason}"


def named_in(text: str) -> str:
    """Return the name in "aten::relu in layer1.0.relu (%input.5)"."""
    name = re.search(r"\(%([^()]+)\)$", text)
    return name[1] if name else ""


def module_in(text: str) -> str:
    """Return the module in "aten::relu in layer1.0.relu (%input.5)"."""
    module = re.search(r"^\S+ in (\S+) ", text)
    return module[1] if module else ""
