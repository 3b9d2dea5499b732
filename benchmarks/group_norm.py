"""Times group_norm and instance_norm with the activation after them, in ipex and in aten, in turn. Prints Markdown:

OMP_NUM_THREADS=1 python benchmarks/group_norm.py
"""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from in_turn import median_ratio, times_in_turn

CASES = [  # shape, groups
    ((1, 64, 112, 112), 32),  # the images of ResNetV2 with group_norm
    ((1, 256, 56, 56), 32),
    ((1, 1024, 14, 14), 32),
    ((8, 256, 56, 56), 32),
    ((1, 320, 64, 64), 32),  # of a diffusion model
    ((1, 64, 56, 56), 1),  # of PoolFormer
    ((1, 64, 128, 128), 64),  # an instance_norm
    ((1, 128, 46, 62), 128),
]
ACTIVATIONS = {"none": [], "relu": ["relu"], "silu": ["silu"]}
SECONDS_PER_CASE = 1.0


def show(x: Tensor, groups: int, activation: str) -> None:
    """Time both, and print a row."""
    channels = x.size(1)
    weight, bias = torch.randn(channels), torch.randn(channels)
    follows = {"none": lambda y: y, "relu": F.relu, "silu": F.silu}[activation]

    def aten() -> object:
        if groups == channels:
            return follows(F.instance_norm(x, None, None, weight, bias))
        return follows(F.group_norm(x, groups, weight, bias))

    def ours() -> object:
        return torch.ops.ipex.group_norm(x, groups, weight, bias, 1e-5, ACTIVATIONS[activation])

    found = times_in_turn(SECONDS_PER_CASE, [aten, ours])
    columns = [f"{1e3 * statistics.median(own):.3f}" for own in found] + [f"{median_ratio(*found):.2f}"]
    layout = "contiguous" if x.is_contiguous() else "channels-last"
    print(f"| {'x'.join(map(str, x.shape))} | {groups} | {layout} | {activation} | {' | '.join(columns)} |", flush=True)


def main() -> None:
    """A row per case."""
    print("| image | groups | layout | activation | aten, ms | ipex, ms | aten / ipex |")
    print("|---|---:|---|---|---:|---:|---:|")
    for shape, groups in CASES:
        for layout in (torch.contiguous_format, torch.channels_last):
            for activation in ACTIVATIONS:
                show(torch.randn(shape).to(memory_format=layout), groups, activation)


if __name__ == "__main__":
    # As long as there is a packed op, memory of results is kept.
    packed = ipex.jit_optimize(torch.jit.trace(nn.Linear(8, 8).eval(), torch.randn(1, 8)))
    with torch.inference_mode():
        main()
