"""What `dynamic` and `weight_only` share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .._adapter import adapter_of
from .._explain.decision import decisions_of
from .._jit_optimize import script_module
from .._load_extension import _C
from .._script_module import cpp_module, refuse_optimized, wrapped
from ._recipe import check_float_layers, module_paths

# What looks at each layer that may be quantised. Of those in `float_layers` it takes none.
_QUANTISING = ("quantize_linears", "quantize_recurrent", "quantize_embeddings")


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
    refuse_optimized(script, caller)
    linears = (recipe.format, recipe.rounds_inputs, recipe.group_size, recipe.symmetric, recipe.embeddings, names)
    result = _C.jit_optimize(cpp_module(script, caller), quantized_linears=linears)
    left = [d.module for d in decisions_of(result) if d.pass_name in _QUANTISING and not d.applied]
    check_float_layers(caller, names, layers, left)
    return wrapped(result, adapter_of(script))
