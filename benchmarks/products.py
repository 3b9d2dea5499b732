"""Times linears, and convolutions of single pixels, as ipex and as aten compute them, called in turn. Prints Markdown:

    OMP_NUM_THREADS=1 python benchmarks/products.py

aten's linears are MKL's or oneDNN's, its convolutions oneDNN's on channels-last images. There are as many weights as do
not fit the caches, one after the other, as in a model.
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
    (7, 2048, 512),
    (14, 256, 1024),
    (14, 1024, 256),
    (28, 512, 128),
]
ELEMENTS_OF_ALL_WEIGHTS = 16 << 20
SECONDS_PER_CASE = 3.0


class Turns:
    """Calls one module after the other."""

    def __init__(self, modules: list[nn.Module], x: Tensor) -> None:
        self.next, self.x = itertools.cycle(modules), x

    def __call__(self) -> Tensor:
        """Call the next one."""
        return next(self.next)(self.x)


def row(name: str, layers: list[nn.Module], x: Tensor, products: int) -> None:
    """Print the medians of a case, their ratio, and the speed of ipex."""
    optimized = [ipex.jit_optimize(torch.jit.trace(layer.eval(), x)) for layer in layers]
    stock = [layer.to(memory_format=torch.channels_last) if x.dim() == 4 else layer for layer in layers]
    for module in optimized * 3:
        module(x)
    aten, ours = times_in_turn(SECONDS_PER_CASE, [Turns(stock, x), Turns(optimized, x)])
    columns = [f"{1e3 * statistics.median(own):.3f}" for own in (aten, ours)] + [f"{median_ratio(aten, ours):.2f}"]
    print(f"| {name} | {' | '.join(columns)} | {2e-9 * products / statistics.median(ours):.0f} |", flush=True)


def main() -> None:
    """A row per case."""
    print("| case | aten, ms | ipex, ms | aten / ipex | ipex, GFLOP/s |\n|---|---:|---:|---:|---:|")
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
