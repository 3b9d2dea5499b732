"""What `dynamic` and `weight_only` share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .._explain import explain
from .._jit_optimize import script_module
from .._load_extension import _C
from .._script_module import cpp_module, wrapped
from ._recipe import module_paths

_LEFT = "it is one of the layers to leave in float"


@dataclass(frozen=True)
class LinearRecipe:
    """How linears are quantised: ipex::QuantizedLinears without the layers that stay in float."""

    format: str
    rounds_inputs: bool = False
    group_size: int = 0
    symmetric: bool = True
    embeddings: bool = False


def quantized(
    module: torch.nn.Module, example_inputs: Any, caller: str, recipe: LinearRecipe, float_layers: Iterable[str]
) -> torch.jit.ScriptModule:
    """Return the optimised module, quantised. Raises where nothing to quantise lies in one of `float_layers`."""
    names = list(module_paths(caller, float_layers))
    layers = "linears"
    if recipe.rounds_inputs:
        layers += ", lstm or gru"
    if recipe.embeddings:
        layers += ", or embeddings"
    caller = f"quantization.{caller}"
    script = script_module(module, example_inputs, caller)
    linears = (recipe.format, recipe.rounds_inputs, recipe.group_size, recipe.symmetric, recipe.embeddings, names)
    result = wrapped(_C.jit_optimize(cpp_module(script, caller), quantized_linears=linears))
    left = [decision.node for decision in explain(result) if decision.reason == _LEFT]
    for name in names:
        if not any(f" in {name} " in node or f" in {name}." in node for node in left):
            raise ValueError(
                f"ipex.{caller}: expected paths of modules with {layers} in float_layers, got {name!r}, of which the "
                "trace has none. Take paths that model.named_modules() gives, of a model that is traced, not scripted."
            )
    return result
