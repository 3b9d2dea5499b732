"""Times softmax in ipex and in aten, in turn, over the last dimension and over others. Prints Markdown:

OMP_NUM_THREADS=1 python benchmarks/softmax.py
"""

from __future__ import annotations

import statistics
from functools import partial

import torch
from torch import nn

import ipex
from in_turn import median_ratio, times_in_turn

CASES = [  # shape, dimension
    ((1, 12, 197, 197), -1),  # scores of a ViT
    ((1, 8, 3136, 8), 2),  # keys of a factorised attention, over the tokens
    ((1, 8, 196, 40), 2),
    ((1, 2, 1, 128), 1),  # weights of two branches of a split attention
    ((1, 21, 520, 520), 1),  # classes of each pixel
    ((1, 150, 128, 128), 1),
    ((64, 10), 0),
]
SECONDS_PER_CASE = 1.0


def main() -> None:
    """A row per case."""
    print("| shape | dimension | aten, ms | ipex, ms | aten / ipex |")
    print("|---|---:|---:|---:|---:|")
    for shape, dim in CASES:
        x = torch.randn(shape) * 3
        ways = [partial(torch.softmax, x, dim), partial(torch.ops.ipex.softmax, x, dim, None)]
        found = times_in_turn(SECONDS_PER_CASE, ways)
        columns = [f"{1e3 * statistics.median(own):.4f}" for own in found] + [f"{median_ratio(*found):.2f}"]
        print(f"| {'x'.join(map(str, shape))} | {dim} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    # As long as there is a packed op, memory of results is kept.
    packed = ipex.jit_optimize(torch.jit.trace(nn.Linear(8, 8).eval(), torch.randn(1, 8)))
    with torch.inference_mode():
        main()
