from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ._linears import LinearRecipe, quantized


def dynamic(
    module: torch.nn.Module,
    example_inputs: Any = None,
    *,
    embeddings: bool = False,
    float_layers: Iterable[str] = (),
) -> torch.jit.ScriptModule:
    """Return what `ipex.jit_optimize` does, with linears, lstm and gru in int8. `module` is not changed.

    Weights are rounded to int8 once, with a scale for each output. A call rounds each row of a linear's input to uint8,
    with a scale and a zero of its own; sums are exact, and bias and what is fused into the linear stay in float32. lstm
    and gru round each input and hidden state so; gates and states stay in float32, and so does everything else.
    `module` and `example_inputs` are those of `ipex.jit_optimize`.

    With `embeddings` the tables of nn.Embedding and nn.EmbeddingBag become rows of 8-bit numbers, each with a scale and
    a smallest number of its own.

    `float_layers` names modules, as in "encoder.layer.11" or "head", whose layers stay in float32. `ipex.explain` says
    what was done with each; small ones gain nothing and stay in float32.

    >>> model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()).eval()
    >>> quantized = ipex.quantization.dynamic(model, torch.randn(4, 512))
    >>> [d.reason for d in ipex.explain(quantized) if d.pass_name == "quantize_linears"]
    ['runs in int8']
    """
    recipe = LinearRecipe("int8", rounds_inputs=True, embeddings=bool(embeddings))
    return quantized(module, example_inputs, "dynamic", recipe, float_layers)
