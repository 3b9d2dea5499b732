"""The page of a report: one file of HTML, with the graph before and after."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .fates import Fate, fate_of_final
from .graphs import FinalNode, OriginalNode
from .layering import positions

Timed = Mapping[int, Mapping[str, Any]]  # by the number of a final node: us, share, shape, kernel


def page(
    fates: Sequence[Fate],
    final: Sequence[FinalNode],
    title: str,
    verdict: Sequence[str],
    timed: Timed | None = None,
) -> str:
    """Return the page. `timed` is what a profile adds."""
    if not final:
        raise ValueError(
            "ipex.explain: expected the report of a ScriptModule for a page, got that of an nn.Module, which has no "
            "graph. Print it, or take ipex.jit_optimize."
        )
    data = page_data(fates, final, title, verdict, timed or {})
    # "</script>" in a name would end the script.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    template = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    return template.replace("<title>ipex: what happened</title>", f"<title>{escape(title)}</title>").replace(
        "__DATA__", text
    )


def page_data(
    fates: Sequence[Fate], final: Sequence[FinalNode], title: str, verdict: Sequence[str], timed: Timed
) -> dict[str, Any]:
    """Return what the page shows."""
    twins: dict[int, list[int]] = defaultdict(list)
    before = []
    for number, fate in enumerate(fates):
        node = fate.node
        shown = {"kind": node.kind, "name": node.name, "module": node.module, "file": node.file, "line": node.line}
        shown |= {"fate": _colour(fate.became), "reason": fate.reason}
        if fate.final is not None:
            shown["twin"] = fate.final
            twins[fate.final].append(number)
        before.append(shown)
    after = [
        {
            "kind": node.kind,
            "name": node.name,
            "module": node.module,
            "fate": _colour(fate_of_final(node)),
            "twins": twins[number],
            **_packed(node),
            **timed.get(number, {}),
        }
        for number, node in enumerate(final)
    ]
    return {
        "title": title,
        "verdict": list(verdict),
        "before": _placed(before, _edges([fate.node for fate in fates])),
        "after": _placed(after, _edges(final)),
    }


def _colour(fate: str) -> str:
    return "folded" if fate == "view" else fate


def _packed(node: FinalNode) -> dict[str, Any]:
    if not node.layers:
        return {}
    layers = node.layers
    return {
        "detail": ", ".join("x".join(map(str, layer.weight)) for layer in layers if layer.weight),
        "post_ops": "; ".join(layer.post_ops for layer in layers if layer.post_ops),
        "math_mode": layers[0].math_mode,
        "layout": "channels-last" if node.eager_layout is False else "as in eager",
        "memory": f"{sum(layer.weight_bytes for layer in layers) / 1e6:.3f} MB",
        "kernel": ", ".join(dict.fromkeys(kernel for layer in layers for kernel in layer.kernels)),
    }


def _edges(nodes: Sequence[OriginalNode | FinalNode]) -> list[tuple[int, int]]:
    numbers: dict[tuple[str, str], int] = {}
    edges = []
    for number, node in enumerate(nodes):
        for source in node.inputs:
            if (node.method, source) in numbers:
                edges.append((numbers[node.method, source], number))
        numbers[node.method, node.name] = number
    return edges


def _placed(nodes: list[dict[str, Any]], edges: list[tuple[int, int]]) -> dict[str, Any]:
    for node, (x, y) in zip(nodes, positions(len(nodes), edges)):
        node["x"], node["y"] = round(x), round(y)
    return {"nodes": nodes, "edges": edges}
