"""What of a model was optimised, what was left to aten, and why: for the tests of whole models and docs/models.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

import ipex
from ipex import _C

# Where the time of a model goes. An op that overwrites its input counts as the op that doesn't.
ANCHORS = {
    "convolution": """_convolution _convolution_mode conv1d conv2d conv3d conv_transpose1d conv_transpose2d
        conv_transpose3d""",
    "linear": "linear addmm addmv",
    "matmul": "matmul mm mv bmm baddbmm addbmm einsum dot",
    "attention": "scaled_dot_product_attention",
    "recurrent": "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell",
    "embedding bag": "embedding_bag",
}
ACTIVATIONS = [
    pattern.removeprefix("aten::").partition("(")[0].removesuffix("_?")
    for _, pattern, is_packed in _C.activation_patterns()
    if is_packed
]
ELEMENTWISE = f"{' '.join(ACTIVATIONS)} prelu add sub rsub mul div pow rsqrt log1p erf masked_fill where"
NORMS = "batch_norm layer_norm group_norm instance_norm softmax log_softmax"

FAMILIES = {
    **{f"aten::{op}": family for family, ops in ANCHORS.items() for op in ops.split()},
    **{f"aten::{op}": "elementwise" for op in ELEMENTWISE.split()},
    **{f"aten::{op}": "norm" for op in NORMS.split()},
}


@dataclass(frozen=True)
class Left:
    """A node that aten computes. `reason` is empty when the report says nothing about it."""

    kind: str
    family: str
    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.place}: {self.reason or 'NO REASON'}"


def left_to_aten(optimized: torch.jit.ScriptModule) -> list[Left]:
    """Every node of a known family in a module that jit_optimize returned."""
    declined = ipex.explain(optimized).declined
    return [Left(n.kind(), family, _place(n), _reason(n, declined)) for n, family in _known_nodes(optimized)]


def families(module: torch.jit.ScriptModule) -> Counter[str]:
    """How many nodes of each family a module has."""
    return Counter(family for _, family in _known_nodes(module))


def _known_nodes(module: torch.jit.ScriptModule) -> Iterator[tuple[Any, str]]:
    for node in _nodes(module.inlined_graph):
        kind = node.kind()
        family = FAMILIES.get(kind) or FAMILIES.get(kind.rstrip("_"))
        if family and not _is_about_shapes(node):
            yield node, family


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _is_about_shapes(node: Any) -> bool:
    """Whether it computes with numbers: as such, or as the tensors that tracing makes of sizes."""
    if next(node.outputs()).type().kind() != "TensorType":
        return True
    tensors = [v.node() for v in node.inputs() if v.type().kind() == "TensorType"]
    computed = [n for n in tensors if n.kind() != "prim::Constant"]
    return bool(computed) and all(
        n.kind() == "prim::NumToTensor" or (n.kind().startswith("aten::") and _is_about_shapes(n)) for n in computed
    )


def _place(node: Any) -> str:
    """The module, as the user wrote it, else the line of source: what `ipex.explain` says too."""
    scope = node.scopeName()
    if "__module." in scope:
        return "in " + scope.rpartition("__module.")[2]
    line = re.search(r'([^/"]+)(?:\((\d+)\)|", line (\d+))', node.sourceRange())
    return f"at {line[1]}:{line[2] or line[3]}" if line else ""


def _reason(node: Any, declined: tuple[ipex.Decision, ...]) -> str:
    """The first reason given: a pass that looked closely comes before the one that explains what is left."""
    kind = node.kind()
    of_kind = [d for d in declined if d.node.split(" ", 1)[0] == kind]
    here = [d for d in of_kind if d.node.startswith(f"{kind} {_place(node)} (")]
    return here[0].reason if here else ""
