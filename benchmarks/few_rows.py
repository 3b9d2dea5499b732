"""Times linears with few rows in the math modes FP32 and BF32 and in TorchScript's own frozen graph, called in turn.

Prints Markdown:

    OMP_NUM_THREADS=1 python benchmarks/few_rows.py

The figures of docs/decisions/reduced_precision.md and products.md come from here.
"""

from __future__ import annotations

import statistics
from functools import partial

import torch
from torch import nn

import ipex
from in_turn import median_ratio, times_in_turn


def mlp(*widths: int) -> nn.Module:
    """Linears with a ReLU behind each but the last."""
    layers = [layer for pair in zip(widths, widths[1:]) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


MODES = (ipex.FP32MathMode.FP32, ipex.FP32MathMode.BF32)
CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    f"linear {rows}x{width_in}x{width_out}": (nn.Linear(width_in, width_out), (rows, width_in))
    for rows in (1, 2, 4, 8, 16)
    for width_in, width_out in ((64, 64), (256, 256), (768, 768), (768, 3072), (1024, 4096), (4096, 4096))
}
CASES |= {
    "MLP 1x64-128-256-64, relu": (mlp(64, 128, 256, 64), (1, 64)),
    "MLP 1x1024-4096-4096-1024, relu": (mlp(1024, 4096, 4096, 1024), (1, 1024)),
    "linear 1x512x512, gelu": (nn.Sequential(nn.Linear(512, 512), nn.GELU()), (1, 512)),
    "linear 1x768x768, gelu": (nn.Sequential(nn.Linear(768, 768), nn.GELU()), (1, 768)),
    "linear 4x768x3072, gelu": (nn.Sequential(nn.Linear(768, 3072), nn.GELU()), (4, 768)),
    "linear 128x768x768": (nn.Linear(768, 768), (128, 768)),
    "conv 64x56x56, 3x3": (nn.Conv2d(64, 64, 3), (1, 64, 56, 56)),
}
SECONDS_PER_CASE = 2.0


@torch.no_grad()
def times(model: nn.Module, x: torch.Tensor) -> list[list[float]]:
    """Of each call, by mode, then TorchScript's own."""
    traced = torch.jit.trace(model.eval(), x)
    optimized = [ipex.jit_optimize(traced, fp32_math_mode=mode) for mode in MODES]
    optimized.append(torch.jit.freeze(traced))
    return times_in_turn(SECONDS_PER_CASE, [partial(module, x) for module in optimized])


def main() -> None:
    """Print a row per case."""
    print("| case | FP32, us | BF32, us | TorchScript, us | FP32 / BF32, median of pairs | TorchScript / FP32 |")
    print("|---|---|---|---|---|---|")
    for name, (model, shape) in CASES.items():
        fp32, bf32, stock = found = times(model, torch.randn(shape))
        columns = [f"{1e6 * statistics.median(own):.1f}" for own in found]
        columns += [f"{median_ratio(slow, fast):.2f}" for slow, fast in ((fp32, bf32), (stock, fp32))]
        print(f"| {name} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
