"""Times recurrent layers in the math modes FP32 and BF32, called in turn, and prints Markdown:

    OMP_NUM_THREADS=1 python benchmarks/recurrent_layers.py

The figures of docs/decisions/reduced_precision.md come from here.
"""

from __future__ import annotations

import statistics
import warnings
from functools import partial

import torch
from torch import nn

import ipex
from in_turn import median_ratio, times_in_turn

MODES = (ipex.FP32MathMode.FP32, ipex.FP32MathMode.BF32)
LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU}
UNITS = (256, 512, 1024)
BATCHES = (1, 2, 4, 16, 64)
STEPS = 16
SECONDS_PER_CASE = 2.0


@torch.no_grad()
def times(layer: nn.RNNBase, x: torch.Tensor) -> list[list[float]]:
    """Of each call, by mode."""
    traced = torch.jit.trace(layer.eval(), x)
    optimized = [ipex.jit_optimize(traced, fp32_math_mode=mode) for mode in MODES]
    return times_in_turn(SECONDS_PER_CASE, [partial(module, x) for module in optimized])


def main() -> None:
    """Print a row per case."""
    warnings.simplefilter("ignore", torch.jit.TracerWarning)
    print("| case | FP32, us a step | BF32, us a step | FP32 / BF32, median of pairs |\n|---|---|---|---|")
    cases = [(kind, units, batch, STEPS) for kind in LAYERS for units in UNITS for batch in BATCHES]
    cases += [("lstm", units, 1, 1) for units in UNITS]  # with these the input projection has a single row, too
    for kind, units, batch, steps in cases:
        fp32, bf32 = times(LAYERS[kind](units, units), torch.randn(steps, batch, units))
        columns = [f"{1e6 / steps * statistics.median(own):.0f}" for own in (fp32, bf32)]
        name = f"{kind} {units}, batch {batch}" + (", one step" if steps == 1 else "")
        print(f"| {name} | {' | '.join(columns)} | {median_ratio(fp32, bf32):.2f} |", flush=True)


if __name__ == "__main__":
    main()
