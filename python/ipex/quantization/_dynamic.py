from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ._linears import LinearRecipe, quantized


def dynamic(
    module: torch.nn.Module, example_inputs: Any = None, *, float_layers: Iterable[str] = ()
) -> torch.jit.ScriptModule:
    """Return what `ipex.jit_optimize` does, with linears in int8. `module` is not changed.

    Weights are rounded to int8 once, with a scale for each output. A call rounds each row of a linear's input to uint8,
    with a scale and a zero of its own; sums are exact, and bias and what is fused into the linear stay in float32.
    Everything else stays in float32. `module` and `example_inputs` are those of `ipex.jit_optimize`.

    `float_layers` names modules, as in "encoder.layer.11" or "head", whose linears stay in float32. `ipex.explain` says
    what was done with each linear; small ones gain nothing and stay in float32.

    >>> model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()).eval()
    >>> quantized = ipex.quantization.dynamic(model, torch.randn(4, 512))
    >>> [d.reason for d in ipex.explain(quantized) if d.pass_name == "quantize_linears"]
    ['runs in int8']
    """
    return quantized(module, example_inputs, "dynamic", LinearRecipe("int8", rounds_inputs=True), float_layers)
