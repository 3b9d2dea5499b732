"""Reports as text: a table in a terminal, with rich where that is installed, and plain lines elsewhere."""

from __future__ import annotations

import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from .fates import FATES, Fate
from .graphs import FinalNode

Row = tuple[str, ...]


def of_graph(verdict: Iterable[str], fates: Sequence[Fate], final: Iterable[FinalNode]) -> str:
    """Return the verdict and two tables: the ops of the original in groups, and the packed ops in groups."""
    parts = ["\n".join(textwrap.fill(line, 118) for line in verdict)]
    if fates:
        parts.append(table(("ops", "op", "became", "how", "first of them"), _groups(fates)))
    packed = _packed(final)
    if packed:
        parts.append(table(("ops", "packed op", "post-ops", "dtype", "math mode", "layout", "MB of weights"), packed))
    return "\n\n".join(parts)


def details(fates: Iterable[Fate]) -> str:
    """Return a line per op of the original."""
    rows = [(f.node.kind, f.node.place or f.node.name, FATES[f.became], f.reason) for f in fates]
    return table(("op", "where", "became", "why"), rows)


def table(head: Row, rows: Sequence[Row]) -> str:
    """Return columns side by side, with a line below the head."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    # Numbers to the right: a column of them is a column whose every cell begins with a digit.
    right = [bool(rows) and all(row[i][:1].isdigit() for row in rows) for i in range(len(head))]

    def line(row: Row) -> str:
        cells = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right)]
        return "  ".join(cells).rstrip()

    return "\n".join([line(head), "  ".join("-" * width for width in widths), *map(line, rows)])


def show(report: Any) -> None:
    """Print a report: coloured tables where the output is a terminal and rich is installed, its text elsewhere."""
    text = str(report)
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.text import Text
        except ImportError:
            pass
        else:
            console = Console()
            styled = Text(text, no_wrap=True, overflow="ellipsis")
            styled.highlight_words([FATES["left"]], "bold yellow")
            styled.highlight_words([FATES["packed"], FATES["fused"], FATES["kernel"]], "green")
            styled.highlight_regex(r"(?m)^.*\n-+(  -+)+$", "bold")
            console.print(styled, soft_wrap=False)
            return
    print(text)


def _groups(all_fates: Iterable[Fate]) -> list[Row]:
    groups: dict[tuple[str, str, str], list[Fate]] = defaultdict(list)
    for fate in all_fates:
        groups[fate.node.kind, fate.became, fate.reason].append(fate)
    # What is left comes first: it is what a reader can do something about.
    order = ["left", *FATES]
    ordered = sorted(groups.items(), key=lambda item: (order.index(item[0][1]), -len(item[1])))
    return [
        (str(len(members)), kind, FATES[became], reason, members[0].node.place)
        for (kind, became, reason), members in ordered
    ]


def _packed(final: Iterable[FinalNode]) -> list[Row]:
    groups: dict[Row, list[int]] = defaultdict(list)
    for node in final:
        layout = "channels-last" if node.eager_layout is False else "as in eager"
        for layer in node.layers:
            key = (layer.op, layer.post_ops or "none", layer.dtype, layer.math_mode, layout)
            groups[key].append(layer.weight_bytes)
    ordered = sorted(groups.items(), key=lambda item: -sum(item[1]))
    return [(str(len(sizes)), *key, f"{sum(sizes) / 1e6:.1f}") for key, sizes in ordered]
