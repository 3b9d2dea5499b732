from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ._linears import LinearRecipe, quantized

# With the inputs that share a scale, where the user does not say.
_GROUP_SIZES = {"int8": 0, "int4": 128, "nf4": 64, "bfloat16": 0, "float8_e4m3fn": 0, "float8_e5m2": 0}


def weight_only(
    module: torch.nn.Module,
    example_inputs: Any = None,
    *,
    dtype: str = "int8",
    group_size: int | None = None,
    symmetric: bool = True,
    embeddings: bool = False,
    float_layers: Iterable[str] = (),
) -> torch.jit.ScriptModule:
    """Return what `ipex.jit_optimize` does, with weights of linears in few bits. `module` is not changed.

    `dtype` is "int8", "int4", "nf4", "bfloat16", "float8_e4m3fn" or "float8_e5m2". Inputs, sums and results stay
    float32. It pays where few rows meet large weights, as in the steps of a language model: those calls wait for the
    weights to be read.

    `group_size` inputs of an output share a scale: a multiple of 8, or 0 for all of them. Without, it is 128 for int4,
    64 for nf4 and 0 for others. With `symmetric=False` a group of integers has an offset too, and uses all codes for
    its range. Numbers of bfloat16 are rounded, and have neither. With `embeddings` the tables of nn.Embedding and
    nn.EmbeddingBag become rows of 8-bit numbers, each with a scale and a smallest number of its own. `float_layers`
    names modules, as in "encoder.layer.11" or "head", whose layers stay in float32. `module` and `example_inputs` are
    those of `ipex.jit_optimize`.

    >>> model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()).eval()
    >>> quantized = ipex.quantization.weight_only(model, torch.randn(1, 512), dtype="int4", group_size=64)
    >>> [d.reason for d in ipex.explain(quantized) if d.pass_name == "quantize_linears"]
    ['its weight is int4 in groups of 64']
    """
    if dtype not in _GROUP_SIZES:
        known = ", ".join(map(repr, _GROUP_SIZES))
        raise ValueError(f"ipex.quantization.weight_only: expected one of {known} in dtype, got {dtype!r}.")
    if group_size is None:
        group_size = _GROUP_SIZES[dtype]
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 0 or group_size % 8 != 0:
        raise ValueError(
            "ipex.quantization.weight_only: expected a multiple of 8, or 0 for whole rows, in group_size, "
            f"got {group_size!r}."
        )
    if dtype == "bfloat16" and group_size != 0:
        raise ValueError(
            f"ipex.quantization.weight_only: expected no group_size for bfloat16, got {group_size}. It has no scales."
        )
    if not symmetric and not dtype.startswith("int"):
        raise ValueError(
            f"ipex.quantization.weight_only: expected symmetric=True for {dtype}, got False. Floats have no offsets."
        )
    recipe = LinearRecipe(dtype, group_size=group_size, symmetric=bool(symmetric), embeddings=bool(embeddings))
    return quantized(module, example_inputs, "weight_only", recipe, float_layers)
