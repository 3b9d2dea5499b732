"""Writes docs/models.md: for each model of the zoo what is packed and fused, what is left to aten, and why."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch

import ipex
from leftovers import ANCHORS, Left, families, left_to_aten
from support import fallback_reasons
from zoo import MODELS, Model

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
GROUPS = {"anchors": set(ANCHORS), "elementwise": {"elementwise"}, "norms": {"norm"}}
NO_REASON = "(no reason given)"

TEXT = """\
# Models

What `ipex.jit_optimize` does with models of well-known families. `make coverage` writes this page. The models are those
of `tests/zoo`: the real topology, small, with random weights; `tests/models/test_zoo.py` compares each with eager.

- **Anchors** are convolutions, linear layers, matrix products, attention, recurrent layers and embedding bags.
- **Elementwise** ops are activations and arithmetic on tensors. **Norms** are batch_norm, layer_norm,
  group_norm and softmax.
- *All* counts the ops of the frozen trace, *left* those that aten still computes. What is gone was packed, fused into a
  packed op, or folded into its weights.

{summary}

## What is left, and why

Reasons are those that `ipex.explain` gives. At the end are calls that a packed op left to aten while it ran, on the CPU
that this page was written on.

{reasons}

## What is left in each model

{details}
"""


class Coverage(NamedTuple):
    """One model before and after."""

    name: str
    before: Counter[str]
    left: list[Left]
    at_run_time: list[str]

    def count(self, group: str) -> tuple[int, int]:
        """All ops of a group, and those left."""
        return sum(self.before[f] for f in GROUPS[group]), sum(left.family in GROUPS[group] for left in self.left)


def cover(model: Model) -> Coverage:
    """Trace, optimise and run a model."""
    module, inputs = model.make()
    traced = torch.jit.trace(module, inputs[0], check_trace=False)
    before = families(torch.jit.freeze(traced, optimize_numerics=False))
    optimized = ipex.jit_optimize(traced)
    for arguments in inputs:
        optimized(*arguments)
    return Coverage(model.name, before, left_to_aten(optimized), fallback_reasons(optimized))


def table(header: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    """Lay out a Markdown table; numbers to the right."""
    is_number = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(header))]
    lines = [header, tuple("---:" if number else "---" for number in is_number), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def summary(results: list[Coverage]) -> str:
    """One line per model, and the sum."""
    rows = [(c.name, *(n for group in GROUPS for n in c.count(group))) for c in results]
    sums = [sum(column) for column in zip(*(row[1:] for row in rows))]
    header = ("model", *(f"{group}, {what}" for group in GROUPS for what in ("all", "left")))
    return table(header, [*rows, ("**all**", *sums)])


def reasons(results: list[Coverage]) -> str:
    """One line per op and reason, the most frequent first within each group."""
    parts = []
    for group, group_families in GROUPS.items():
        ops: Counter[tuple[str, str]] = Counter()
        models: Counter[tuple[str, str]] = Counter()
        for coverage in results:
            found = [(x.kind, x.reason or NO_REASON) for x in coverage.left if x.family in group_families]
            ops.update(found)
            models.update(set(found))
        rows = [(f"`{kind}`", reason, n, models[kind, reason]) for (kind, reason), n in ops.most_common()]
        parts.append(f"### {group.capitalize()}\n\n" + table(("op", "reason", "ops", "models"), rows))
    calls: dict[str, list[str]] = {}
    for coverage in results:
        for reason in sorted({re.sub(r"\[[0-9, ]+\]", "[..]", reason) for reason in coverage.at_run_time}):
            calls.setdefault(reason, []).append(coverage.name)
    rows = [(reason, "; ".join(names)) for reason, names in calls.items()]
    parts.append("### At run time\n\n" + table(("reason", "models"), rows))
    return "\n\n".join(parts)


def details(results: list[Coverage]) -> str:
    """What is left in each model, by op."""
    rows = []
    for coverage in results:
        counts = Counter(left.kind for left in coverage.left)
        rows.append((coverage.name, ", ".join(f"{n} `{kind}`" for kind, n in counts.most_common()) or "nothing"))
    return table(("model", "left to aten"), rows)


def main() -> None:
    """Write the page and print it."""
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore")
    results = [cover(model) for model in MODELS.values()]
    page = TEXT.format(summary=summary(results), reasons=reasons(results), details=details(results))
    PAGE.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
