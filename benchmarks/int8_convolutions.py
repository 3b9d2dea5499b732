"""Times 1-d, 3-d and transposed convolutions in float32 and in static int8, called in turn. Prints Markdown:

    OMP_NUM_THREADS=1 python benchmarks/int8_convolutions.py

Each is a stack of two, so that 8-bit numbers pass once from layer to layer, as they do in a model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

import ipex
from in_turn import median_ratio, times_in_turn
from ipex.quantization import convert, prepare

CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1-d, 256 channels, 3 taps, 1000 long": (lambda: nn.Conv1d(256, 256, 3, padding=1), (1, 256, 1000)),
    "1-d, 64 channels, 7 taps, 4000 long": (lambda: nn.Conv1d(64, 64, 7, padding=3), (1, 64, 4000)),
    "1-d, depthwise, 512 channels, 31 taps": (lambda: nn.Conv1d(512, 512, 31, padding=15, groups=512), (1, 512, 500)),
    "3-d, 64 channels, 3x3x3": (lambda: nn.Conv3d(64, 64, 3, padding=1), (1, 64, 8, 28, 28)),
    "3-d, 32 channels, 1x3x3": (lambda: nn.Conv3d(32, 32, (1, 3, 3), padding=(0, 1, 1)), (1, 32, 16, 28, 28)),
    "transposed, 128 channels, 3x3, stride 1": (lambda: nn.ConvTranspose2d(128, 128, 3, padding=1), (1, 128, 28, 28)),
    "transposed, 128 channels, 2x2, stride 2": (lambda: nn.ConvTranspose2d(128, 128, 2, stride=2), (1, 128, 14, 14)),
    "transposed, 64 channels, 4x4, stride 2": (lambda: nn.ConvTranspose2d(64, 64, 4, 2, 1), (1, 64, 14, 14)),
    "transposed, 1-d, 128 channels, stride 4": (lambda: nn.ConvTranspose1d(128, 128, 8, 4, 2), (1, 128, 250)),
}


def main() -> None:
    """Print a row for each case."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("| two of | float32, ms | int8, ms | ratio | kernels |\n|---|---|---|---|---|")
    for name, (layer, shape) in CASES.items():
        torch.manual_seed(0)
        model, x = nn.Sequential(layer(), nn.ReLU(), layer(), nn.ReLU()).eval(), torch.randn(shape)
        plain, prepared = ipex.jit_optimize(model, x), prepare(model, x)
        prepared(x)
        quantized = convert(prepared)
        calls = [lambda: plain(x), lambda: quantized(x)]  # noqa: B023  called before the next case
        with torch.no_grad():
            times = times_in_turn(2.0, calls, time.thread_time)
        kernels = {kernel for i in range(2) for kernel in getattr(quantized, f"packed_{i}").primitive_kernels()[:1]}
        reasons = {reason for i in range(2) for reason in getattr(quantized, f"packed_{i}").fallback_reasons()}
        best = [min(own) * 1e3 for own in times]
        ratio = median_ratio(*times)
        print(f"| {name} | {best[0]:.2f} | {best[1]:.2f} | {ratio:.2f} | {', '.join(kernels | reasons)} |", flush=True)


if __name__ == "__main__":
    main()
