"""What the optimised model computes in, which says how far its results may lie from the original's."""

from __future__ import annotations

import torch
from torch import nn

from .._explain.packed import PackedOp
from .._explain.report import Report
from .._tolerance import coarsest, computed_in, name_of
from ..quantization import WeightOnlyLinear
from ..quantization._weight_only_module import precision_of_rows

_IN_INT8 = ("ipex::embedding_in_int8", "ipex::embedding_bag_in_int8")


def precision_of(original: nn.Module, model: nn.Module, report: Report | None, expected: list[torch.dtype]) -> str:
    """Return the coarsest precision of the model: of its packed ops, their math mode, its weights, and its results.

    Codes that the original has for weights are no loss. Rounding the inputs of its linears is.
    """
    codes = _codes_in(original)
    found = {name_of(dtype) for dtype in expected}
    found |= {name_of(parameter.dtype) for parameter in model.parameters()}
    found |= {precision_of_rows(original), precision_of_rows(model)} | (_codes_in(model) - codes)
    for node in report.final if report else ():
        found |= {precision for layer in node.layers for precision in _of_layer(layer, codes)}
        if node.kind in _IN_INT8:
            found.add("int8")
    return coarsest(found)


def _codes_in(model: nn.Module) -> set[str]:
    return {f"int{module.bits}" for module in model.modules() if isinstance(module, WeightOnlyLinear)}


def _of_layer(layer: PackedOp, codes: set[str]) -> set[str]:
    has_mode = layer.math_mode in ("FP32", "BF32")
    rows = {"16 bits": {"rows16"}, "8 bits": {"rows8"}}.get(layer.rows, set())
    mode = layer.math_mode if has_mode else computed_in(torch.float32)
    return {layer.dtype, *({layer.weight_format} - codes), mode} | rows
