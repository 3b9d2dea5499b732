"""The graph before and after, as the page and the tables see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from .._load_extension import _C
from .._torch_internals import TensorType
from .packed import PackedOp, packed_ops

# What only hands values on.
CARRIERS = {
    "prim::Constant",
    "prim::GetAttr",
    "prim::ListConstruct",
    "prim::ListUnpack",
    "prim::NumToTensor",
    "prim::TupleConstruct",
    "prim::TupleUnpack",
}


@dataclass(frozen=True)
class OriginalNode:
    """An op of the model as it was given."""

    kind: str
    name: str
    module: str
    file: str
    line: int
    inputs: tuple[str, ...]
    method: str

    @property
    def place(self) -> str:
        """Where it stands: its module, and the line of the user's source."""
        line = f"{self.file.rpartition('/')[2]}:{self.line}" if self.file else ""
        return " ".join(part for part in (self.module, line) if part)


@dataclass(frozen=True)
class FinalNode:
    """An op of the optimised model. `layers` are the packed ops it runs, most often one or none."""

    kind: str
    name: str
    module: str
    inputs: tuple[str, ...]
    method: str
    layers: tuple[PackedOp, ...] = ()
    eager_layout: bool | None = None
    is_nested: bool = field(default=False, compare=False)  # inside a branch or a loop
    loaded_name: str = field(default="", compare=False)  # in the graph as it is now


def original_nodes(module: Any) -> tuple[OriginalNode, ...]:
    """Return the ops that the optimiser was given; none for models that earlier versions saved."""
    return tuple(
        OriginalNode(kind, name, path, file, line, tuple(inputs), method)
        for kind, name, path, file, line, inputs, method in _C.original_graph(module)
    )


def final_nodes(module: Any) -> tuple[FinalNode, ...]:
    """Return the ops of an optimised module, by the names that they had when it was optimised."""
    packed = packed_ops(module)
    found: list[FinalNode] = []
    for method in module._method_names():
        graph = module._get_method(method).graph
        for node, is_nested in _nodes(graph):
            if node.kind() in CARRIERS or not any(map(_holds_tensors, node.outputs())):
                continue
            sources: list[str] = []
            attributes: list[str] = []
            for value in node.inputs():
                _add_sources(value, sources, attributes)
            found.append(
                FinalNode(
                    node.kind(),
                    next(iter(node.outputs())).debugName(),
                    node.scopeName().rpartition("__module.")[2],
                    tuple(dict.fromkeys(sources)),
                    method,
                    tuple(layer for name in attributes for layer in packed.get(name, ())),
                    _eager_layout(node),
                    is_nested,
                )
            )
    return _with_first_names(found, _C.final_names(module))


def _with_first_names(found: list[FinalNode], saved: list[tuple[str, str, str, str]]) -> tuple[FinalNode, ...]:
    """Give nodes out of a file the names that they had before: it keeps their order alone."""
    if [(node.kind, node.method) for node in found] != [(kind, method) for kind, _, _, method in saved]:
        return tuple(found)  # optimised a second time, or by an earlier version
    names = {(node.method, node.name): first for node, (_, first, _, _) in zip(found, saved)}
    return tuple(
        replace(
            node,
            name=first,
            module=path,
            loaded_name=node.name,
            inputs=tuple(names.get((node.method, source), source) for source in node.inputs),
        )
        for node, (_, first, path, _) in zip(found, saved)
    )


def _nodes(block: Any, is_nested: bool = False) -> Iterator[tuple[Any, bool]]:
    for node in block.nodes():
        for inner in node.blocks():
            yield from _nodes(inner, True)
        yield node, is_nested


def _add_sources(value: Any, sources: list[str], attributes: list[str]) -> None:
    node = value.node()
    if node.kind() == "prim::GetAttr":
        attributes.append(node.s("name"))
    elif node.kind() == "prim::Param":
        if _holds_tensors(value):
            sources.append(value.debugName())
    elif node.kind() in CARRIERS:
        for inner in node.inputs():
            _add_sources(inner, sources, attributes)
    elif _holds_tensors(value):
        sources.append(next(iter(node.outputs())).debugName())


def _holds_tensors(value: Any) -> bool:
    kind = value.type()
    return "Tensor" in kind.str() or isinstance(kind, TensorType)


def _eager_layout(node: Any) -> bool | None:
    """Whether a run op gives eager's layout, or channels-last. None where there is no choice."""
    if not node.kind().endswith("_run"):
        return None
    last = list(node.inputs())[-1]
    if last.node().kind() == "ipex::is_channels_last":
        return False  # inside a stretch; only its end asks what the user's input was
    value = last.toIValue() if last.node().kind() == "prim::Constant" else None
    return value if isinstance(value, bool) else None
