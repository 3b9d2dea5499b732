"""What was done with each node of an optimised model, and why."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .._script_module import cpp_module
from . import page, text
from .decision import Decision, decisions_of
from .fates import Fate, fates
from .graphs import FinalNode, OriginalNode, final_nodes, original_nodes
from .verdict import verdict

if TYPE_CHECKING:
    from ..quantization import Prepared


@dataclass(frozen=True)
class Report:
    """What became of a model. Print it, go through its decisions, or write it as JSON or as a page.

    `original` are the ops of the model as it was given, `final` those of the optimised one. Both are empty for a model
    that `ipex.optimize` returned: its layers stay modules, and `decisions` tells about each.
    """

    decisions: tuple[Decision, ...]
    original: tuple[OriginalNode, ...] = field(default=(), repr=False, compare=False)
    final: tuple[FinalNode, ...] = field(default=(), repr=False, compare=False)

    @property
    def applied(self) -> tuple[Decision, ...]:
        """The decisions that changed the model."""
        return tuple(d for d in self.decisions if d.applied)

    @property
    def declined(self) -> tuple[Decision, ...]:
        """The decisions to leave a node as it was, with the reason."""
        return tuple(d for d in self.decisions if not d.applied)

    @cached_property
    def fates(self) -> tuple[Fate, ...]:
        """What became of each op of the original model, in its order."""
        return fates(self.original, self.final, self.decisions)

    @property
    def verdict(self) -> tuple[str, ...]:
        """The whole in a few lines: how much was packed and fused, what is left."""
        return verdict(self.fates, self.final)

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    def __str__(self) -> str:
        if not self.final:
            return "\n".join(map(str, self.decisions))
        return text.of_graph(self.verdict, self.fates, self.final)

    def details(self) -> str:
        """Return a line per op of the original model: what became of it, why, and where it stands in the source."""
        return text.details(self.fates)

    def to_json(self) -> str:
        """Return all of it as JSON."""
        return json.dumps(self.as_dict(), indent=1)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as lists and dictionaries."""
        return {
            "verdict": list(self.verdict) if self.final else [],
            "decisions": [dataclasses.asdict(d) for d in self.decisions],
            "original": [
                {**dataclasses.asdict(f.node), "became": f.became, "reason": f.reason, "final": f.final}
                for f in self.fates
            ],
            "final": [dataclasses.asdict(node) for node in self.final],
        }

    def to_html(self, path: str | Path | None = None, title: str = "What became of the model") -> str:
        """Return one page, which needs nothing else, with the graph before and after. Write it to `path`, if given."""
        made = page.page(self.fates, self.final, title, self.verdict)
        if path is not None:
            Path(path).write_text(made, encoding="utf-8")
        return made


def explain(module: torch.nn.Module | Prepared) -> Report:
    """Return what was done with each part of an optimised module, and why.

    Of `jit_optimize`: with each node; that report is saved with the model. Of `optimize`: with each module. Of
    `quantization.prepare`: with each node of the model that observes.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> report = ipex.explain(ipex.jit_optimize(model, torch.randn(2, 8)))
    >>> print(report.verdict[0])
    1 of 1 linear packed. 1 of 1 elementwise op fused.
    """
    own = getattr(module, "__dict__", {})
    report = own.get("_ipex_report")
    if isinstance(report, Report):
        return report
    cpp = cpp_module(own.get("_observed", module), "explain")
    return Report(decisions_of(cpp), original_nodes(cpp), final_nodes(cpp))
