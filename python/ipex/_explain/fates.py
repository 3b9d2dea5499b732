"""What became of each op of the original graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from .._load_extension import _C
from .decision import Decision
from .graphs import FinalNode, OriginalNode

# What a node of the original graph became, and what a table calls it.
FATES = {
    "packed": "packed",
    "kernel": "kernel of ipex",
    "fused": "fused",
    "folded": "folded or removed",
    "layout": "layout or dtype change",
    "view": "view of its input",
    "left": "left to aten",
}
_OF_PASS = {"prepack": "packed", "fold": "folded", "remove": "folded", "simplify": "folded", "share": "folded"}
_LAYOUT_OPS = {"aten::contiguous", "aten::to", "aten::type_as", "ipex::to_channels_last", "ipex::restore_layout"}


@dataclass(frozen=True)
class Fate:
    """What became of one op, and why. `final` is the number of the node that computes it now."""

    node: OriginalNode
    became: str
    reason: str
    final: int | None


def fates(
    original: Sequence[OriginalNode], final: Sequence[FinalNode], decisions: Iterable[Decision]
) -> tuple[Fate, ...]:
    """Return the fate of each original node."""
    about: dict[tuple[str, str], list[Decision]] = defaultdict(list)
    same = _Components()
    for decision in decisions:
        key = (decision.method, decision.name)
        about[key].append(decision)
        if decision.into:
            same.join(key, (decision.method, decision.into))
    by_name = {(node.method, node.name): number for number, node in enumerate(final)}
    of_component = {
        same.root(key): number for key, number in by_name.items() if final[number].kind.startswith("ipex::")
    }
    found: dict[tuple[str, str], Fate] = {}
    readers: dict[tuple[str, str], set[int | None]] = defaultdict(set)
    for node in reversed(original):
        key = (node.method, node.name)
        fate = _fate(node, about[key], by_name.get(key), of_component.get(same.root(key)), final, readers[key])
        found[key] = fate
        for source in node.inputs:
            readers[node.method, source].add(fate.final)
    return tuple(found[node.method, node.name] for node in original)


def fate_of_final(node: FinalNode) -> str:
    """Return what kind of node this is after the optimisation."""
    if node.kind in _LAYOUT_OPS:
        return "layout"
    if node.layers or node.kind.endswith("_run"):
        return "packed"
    if node.kind.startswith("ipex::"):
        return "kernel"
    return "view" if node.kind in _views() else "left"


def _fate(
    node: OriginalNode,
    decisions: Sequence[Decision],
    stayed: int | None,
    computed_by: int | None,
    final: Sequence[FinalNode],
    readers: set[int | None],
) -> Fate:
    applied = [d for d in decisions if d.applied and d.pass_name not in ("keep_channels_last", "pin_math_mode")]
    if stayed is not None and final[stayed].kind == node.kind:
        reasons = [d.reason for d in decisions if not d.applied]
        became = "view" if node.kind in _views() else "left"
        return Fate(node, became, reasons[-1] if reasons else "", stayed)
    number = stayed if stayed is not None else computed_by
    reader = next(iter(readers)) if len(readers) == 1 else None
    part_of = reader if reader is not None and final[reader].kind.startswith("ipex::") else None
    if applied:
        number = part_of if number is None else number  # a layer of a chain
        first = applied[0]
        became = _OF_PASS.get(first.pass_name.partition("_")[0], "fused")
        if became == "fused" and number is not None and first.into == first.name:
            became = "kernel"
        reason = f"into {final[number].kind}" if became == "packed" and number is not None else first.reason
        return Fate(node, became, reason, number)
    if number is not None:
        return Fate(node, "kernel", f"became {final[number].kind}", number)
    if part_of is not None:
        return Fate(node, "fused", f"part of {final[part_of].kind}", part_of)
    return Fate(node, "folded", "nothing reads it any more", None)


@cache
def _views() -> frozenset[str]:
    return frozenset(
        row["name"]
        for row in _C.op_table()
        if (row["memory"] in ("view", "maybe_view") or (row["memory"] == "itself" and row["writes"] == "nothing"))
        and "dropout" not in row["name"]  # one that stays is in training mode
    )


class _Components:
    """Names that one op of the result computes."""

    def __init__(self) -> None:
        self._up: dict[tuple[str, str], tuple[str, str]] = {}

    def root(self, key: tuple[str, str]) -> tuple[str, str]:
        while key in self._up:
            key = self._up[key]
        return key

    def join(self, one: tuple[str, str], other: tuple[str, str]) -> None:
        one, other = self.root(one), self.root(other)
        if one != other:
            self._up[one] = other
