"""Times a linear with each activation against the linear alone, called in turn. Prints Markdown:

OMP_NUM_THREADS=1 python benchmarks/activations.py
"""

from __future__ import annotations

import statistics
from functools import partial

import torch
from torch import nn

import ipex
from in_turn import times_in_turn

ROWS, DEPTH, WIDTH = 128, 768, 3072
ACTIVATIONS: dict[str, nn.Module] = {
    "none": nn.Identity(),
    "relu": nn.ReLU(),
    "gelu": nn.GELU(),
    "gelu, tanh": nn.GELU(approximate="tanh"),
    "silu": nn.SiLU(),
    "sigmoid": nn.Sigmoid(),
}
SECONDS = 10.0


def main() -> None:
    """A row per activation: ours fused, and what aten takes for it alone."""
    x, linear = torch.randn(ROWS, DEPTH), nn.Linear(DEPTH, WIDTH)
    y = linear(x)
    models = [nn.Sequential(linear, activation).eval() for activation in ACTIVATIONS.values()]
    calls = [partial(ipex.jit_optimize(torch.jit.trace(model, x)), x) for model in models]
    calls += [partial(activation, y) for activation in ACTIVATIONS.values()]
    medians = [1e3 * statistics.median(own) for own in times_in_turn(SECONDS, calls)]
    ours, atens = medians[: len(models)], medians[len(models) :]
    print("| activation | linear with it, ms | more than without | aten, alone |")
    print("|---|---:|---:|---:|")
    for name, own, aten in zip(ACTIVATIONS, ours, atens):
        print(f"| {name} | {own:.2f} | {own - ours[0]:.2f} | {aten:.2f} |")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
