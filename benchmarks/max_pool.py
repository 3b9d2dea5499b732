"""Times max_pool2d of channels-last images in ipex and in aten, called in turn. Prints Markdown:

OMP_NUM_THREADS=1 python benchmarks/max_pool.py
"""

from __future__ import annotations

import statistics
from functools import partial

import torch

import ipex  # noqa: F401  (its ops)
from in_turn import median_ratio, times_in_turn

CASES = [  # shape, window, stride, padding
    ((1, 64, 112, 112), 3, 2, 1),
    ((1, 192, 56, 56), 3, 2, 0),
    ((1, 256, 28, 28), 3, 1, 1),
    ((1, 64, 224, 224), 2, 2, 0),
    ((1, 20, 30, 30), 3, 2, 1),
]
SECONDS_PER_CASE = 2.0


def main() -> None:
    """A row per case."""
    print("| image | window, stride | aten, ms | ipex, ms | aten / ipex |")
    print("|---|---|---:|---:|---:|")
    for shape, window, stride, padding in CASES:
        x = torch.randn(shape).to(memory_format=torch.channels_last)
        arguments = (x, [window] * 2, [stride] * 2, [padding] * 2, [1, 1], False)
        ops = (torch.ops.aten.max_pool2d, torch.ops.ipex.max_pool2d)
        found = times_in_turn(SECONDS_PER_CASE, [partial(op, *arguments) for op in ops])
        columns = [f"{1e3 * statistics.median(own):.3f}" for own in found] + [f"{median_ratio(*found):.2f}"]
        print(f"| {'x'.join(map(str, shape))} | {window}, {stride} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
