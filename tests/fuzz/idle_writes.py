"""Ops in place whose effect nobody reads: ipex removes them, as TorchScript does others whose results nobody reads."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import _C


def remove_idle_writes(graph: torch.Graph) -> None:
    """Destroy ops in place to what no result and no op that stays may hold, and what was computed for them alone."""
    nodes = list(graph.nodes())
    producers = {value.debugName(): node for node in nodes for value in node.outputs()}
    bases = {value.debugName(): _base(value) for node in nodes for value in node.outputs()}
    idle = [n for n in nodes if n.kind().endswith("_") and not any(output.uses() for output in n.outputs())]
    stay = [n for n in nodes if n not in idle and (n.kind().endswith("_") or list(n.blocks()))]
    written = True
    while written:
        read = _all_behind([*graph.outputs(), *(value for node in stay for value in _read_by(node))], producers)
        read_bases = {bases.get(name) for name in read} | {None}
        written = [n for n in idle if _base(n.inputsAt(0)) in read_bases]
        idle = [n for n in idle if n not in written]
        stay += written
    for node in reversed(idle):
        node.destroy()
    _C._jit_pass_dce(graph)


def _base(value: _C.Value) -> str | None:
    """The name of the fresh tensor that the value is, or is a view of. None where it may be an input's."""
    node = value.node()
    if node.kind() == "prim::ListUnpack":
        return _base(node.inputsAt(0))
    if node.kind().startswith("prim::"):
        return None
    is_view = "(a" in node.schema().split("->")[-1]
    return _base(node.inputsAt(0)) if is_view else value.debugName()


def _read_by(node: _C.Node) -> list[_C.Value]:
    inside = [value for block in node.blocks() for inner in block.nodes() for value in _read_by(inner)]
    return [*node.inputs(), *inside, *(value for block in node.blocks() for value in block.outputs())]


def _all_behind(values: Iterable[_C.Value], producers: dict[str, _C.Node]) -> set[str]:
    """The names of the values and of all that they are computed from."""
    found: set[str] = set()
    left = list(values)
    while left:
        name = left.pop().debugName()
        if name not in found:
            found.add(name)
            left += _read_by(producers[name]) if name in producers else []
    return found
