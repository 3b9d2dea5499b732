"""What of a model is in training mode: its results are random, or hang on the other rows of a batch."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

# Ops that training changes, and which of their inputs says that they train.
_TRAIN = {
    "aten::dropout": 2,
    "aten::dropout_": 2,
    "aten::feature_dropout": 2,
    "aten::alpha_dropout": 2,
    "aten::feature_alpha_dropout": 2,
    "aten::native_dropout": 2,
    "aten::batch_norm": 5,
}
_RUNNING_MEAN = 3
# Modules that training changes. Of others in training mode, as in what torch.fx makes, the graph tells.
_TRAINED = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.MultiheadAttention,
    nn.RNNBase,
    nn.RReLU,
)


def refuse_training(module: nn.Module, caller: str) -> None:
    """Raise where the module, or one in it that training changes, is in training mode."""
    parts = [(name, part) for name, part in module.named_modules() if part is module or isinstance(part, _TRAINED)]
    training = [name for name, part in parts if getattr(part, "training", False)]
    if not training:
        return
    where = "" if "" in training else f" in {', '.join(training[:3])}{', ...' if len(training) > 3 else ''}"
    raise ValueError(
        f"ipex.{caller}: expected a module in eval mode, got training=True{where}. Call module.eval() first."
    )


def warn_of_training(module: torch.jit.ScriptModule, caller: str, stacklevel: int) -> None:
    """Warn of ops in an optimised graph that compute as in training."""
    graph: Any = module.graph  # held: its nodes go with it
    nodes = [node for kind in _TRAIN for node in graph.findAllNodes(kind) if _trains(node)]
    found = [f"{node.kind()} at {_place(node)}" for node in nodes]
    if found:
        warnings.warn(
            f"ipex.{caller}: expected a module without ops in training mode, got {', '.join(found[:3])}"
            f"{', ...' if len(found) > 3 else ''}. The results are those of training. Call eval() on the model before "
            "it is traced, or leave these ops out if they are meant so.",
            stacklevel=stacklevel + 1,
        )


def _trains(node: Any) -> bool:
    index = _TRAIN.get(node.kind())
    if index is None:
        return False
    inputs = list(node.inputs())
    if node.kind() == "aten::batch_norm" and str(inputs[_RUNNING_MEAN].type()) == "NoneType":
        return False  # it has no other statistics
    return bool(inputs[index].toIValue())


def _place(node: Any) -> str:
    scope = node.scopeName().rpartition("/")[2].removeprefix("__module.")
    return str(scope or node.sourceRange().strip().splitlines()[0])
