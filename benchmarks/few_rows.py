"""Times linears with few rows in the math modes FP32 and BF32, called in turn, and prints Markdown:

    OMP_NUM_THREADS=1 python benchmarks/few_rows.py

The figures of docs/decisions/0008-bf16-weights-for-few-rows.md come from here.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

import ipex

MODES = (ipex.FP32MathMode.FP32, ipex.FP32MathMode.BF32)
CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    f"linear {rows}x{width_in}x{width_out}": (nn.Linear(width_in, width_out), (rows, width_in))
    for rows in (1, 2, 4, 8)
    for width_in, width_out in ((768, 768), (1024, 4096), (4096, 4096))
}
CASES |= {
    "linear 1x512x512, gelu": (nn.Sequential(nn.Linear(512, 512), nn.GELU()), (1, 512)),
    "linear 1x768x768, gelu": (nn.Sequential(nn.Linear(768, 768), nn.GELU()), (1, 768)),
    "linear 4x768x3072, gelu": (nn.Sequential(nn.Linear(768, 3072), nn.GELU()), (4, 768)),
    "linear 128x768x768": (nn.Linear(768, 768), (128, 768)),
    "conv 64x56x56, 3x3": (nn.Conv2d(64, 64, 3), (1, 64, 56, 56)),
}
SECONDS_PER_CASE = 2.0


@torch.no_grad()
def times(model: nn.Module, x: torch.Tensor) -> list[list[float]]:
    """Microseconds of each call, by mode."""
    traced = torch.jit.trace(model.eval(), x)
    optimized = [ipex.jit_optimize(traced, fp32_math_mode=mode) for mode in MODES]
    for module in optimized * 5:
        module(x)
    found: list[list[float]] = [[], []]
    end = time.perf_counter() + SECONDS_PER_CASE
    while time.perf_counter() < end:
        for module, own in zip(optimized, found):
            start = time.perf_counter()
            module(x)
            own.append(1e6 * (time.perf_counter() - start))
    return found


def main() -> None:
    """Print a row per case."""
    print("| case | FP32, us | BF32, us | FP32 / BF32, median of pairs |\n|---|---|---|---|")
    for name, (model, shape) in CASES.items():
        fp32, bf32 = times(model, torch.randn(shape))
        ratio = statistics.median(f / b for f, b in zip(fp32, bf32))
        print(f"| {name} | {statistics.median(fp32):.0f} | {statistics.median(bf32):.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
