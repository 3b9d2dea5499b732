"""Times linears, and convolutions of single pixels, as aten and as ipex compute them, called in turn. Prints Markdown:

    OMP_NUM_THREADS=1 python benchmarks/products.py

aten's linears are MKL's or oneDNN's, its convolutions oneDNN's on channels-last images. ipex computes them in the math
modes FP32 and BF32. There are as many weights as do not fit the caches, one after the other, as in a model.
"""

from __future__ import annotations

import itertools
import statistics

import torch
from torch import Tensor, nn

import ipex
from in_turn import median_ratio, times_in_turn

LINEARS = [  # rows, depth, columns
    (17, 768, 768),
    (32, 64, 64),
    (64, 768, 768),
    (128, 768, 768),
    (128, 768, 3072),
    (128, 3072, 768),
    (197, 768, 3072),
]
CONVOLUTIONS = [  # side of the image, channels, columns
    (7, 160, 960),
    (7, 960, 160),
    (7, 512, 2048),
    (7, 2048, 512),
    (14, 256, 1024),
    (14, 1024, 256),
    (28, 512, 128),
    (56, 64, 256),
]
ELEMENTS_OF_ALL_WEIGHTS = 16 << 20
SECONDS_PER_CASE = 3.0
MODES = (ipex.FP32MathMode.FP32, ipex.FP32MathMode.BF32)


class Turns:
    """Calls one module after the other."""

    def __init__(self, modules: list[nn.Module], x: Tensor) -> None:
        self.next, self.x = itertools.cycle(modules), x

    def __call__(self) -> Tensor:
        """Call the next one."""
        return next(self.next)(self.x)


def row(name: str, layers: list[nn.Module], x: Tensor, products: int) -> None:
    """Print the medians of a case, their ratios, and the speed of ipex."""
    traced = [torch.jit.trace(layer.eval(), x) for layer in layers]
    optimized = [[ipex.jit_optimize(module, fp32_math_mode=mode) for module in traced] for mode in MODES]
    stock = [layer.to(memory_format=torch.channels_last) if x.dim() == 4 else layer for layer in layers]
    for module in [*optimized[0], *optimized[1]] * 3:
        module(x)
    aten, fp32, bf32 = found = times_in_turn(SECONDS_PER_CASE, [Turns(own, x) for own in (stock, *optimized)])
    columns = [f"{1e3 * statistics.median(own):.3f}" for own in found]
    columns += [f"{median_ratio(slow, fast):.2f}" for slow, fast in ((aten, fp32), (fp32, bf32))]
    columns += [f"{2e-9 * products / statistics.median(own):.0f}" for own in (fp32, bf32)]
    print(f"| {name} | {' | '.join(columns)} |", flush=True)


def main() -> None:
    """A row per case."""
    print("| case | aten, ms | FP32, ms | BF32, ms | aten / FP32 | FP32 / BF32 | FP32, GFLOP/s | BF32, GFLOP/s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for rows, depth, columns in LINEARS:
        layers = [nn.Linear(depth, columns) for _ in range(ELEMENTS_OF_ALL_WEIGHTS // (depth * columns))]
        row(f"linear {rows}x{depth}x{columns}", layers[:64], torch.randn(rows, depth), rows * depth * columns)
    for side, channels, columns in CONVOLUTIONS:
        layers = [nn.Conv2d(channels, columns, 1) for _ in range(ELEMENTS_OF_ALL_WEIGHTS // (channels * columns))]
        x = torch.randn(1, channels, side, side).to(memory_format=torch.channels_last)
        row(f"{side}x{side} pixels, {channels} to {columns}", layers[:64], x, side * side * channels * columns)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
