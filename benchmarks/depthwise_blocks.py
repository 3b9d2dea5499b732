"""Times the blocks of MobileNetV2 with their three convolutions in one pass, and one by one, called in turn.

Prints Markdown:

    python benchmarks/depthwise_blocks.py --threads 1 --batch 8

The figures of docs/decisions/convolutions.md come from here.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from torch import Tensor, nn

import ipex
from in_turn import median_ratio, times_in_turn
from ipex.bench.models import MODELS

BLOCKS = [  # side of the image, channels, channels between, channels of the result, stride
    (112, 16, 96, 24, 2),
    (56, 24, 144, 24, 1),
    (56, 24, 144, 32, 2),
    (28, 32, 192, 32, 1),
    (14, 64, 384, 64, 1),
    (14, 96, 576, 96, 1),
    (7, 160, 960, 160, 1),
]


ACTIVATIONS = {"relu6": nn.ReLU6, "silu": nn.SiLU}


def block(channels: int, between: int, results: int, stride: int, activation: str, layers: int) -> nn.Module:
    """Expand, convolve each channel and, with three layers, project."""
    model = nn.Sequential(
        nn.Conv2d(channels, between, 1),
        ACTIVATIONS[activation](),
        nn.Conv2d(between, between, 3, stride, 1, groups=between),
        ACTIVATIONS[activation](),
        nn.Conv2d(between, results, 1),
    )
    return model if layers == 3 else model[:-1]


def row(title: str, model: nn.Module, inputs: tuple[Tensor, ...], seconds: float) -> str:
    """One by one against in one pass."""
    traced = torch.jit.trace(model.eval(), inputs, check_trace=False)
    ways = [ipex.jit_optimize(traced, disable=["chain_convolutions"]), ipex.jit_optimize(traced)]
    apart, together = times_in_turn(seconds, [lambda way=way: way(*inputs) for way in ways])
    times = " | ".join(f"{1e3 * statistics.median(own):.3g}" for own in (apart, together))
    return f"| {title} | {times} | {median_ratio(apart, together):.2f} | {min(apart) / min(together):.2f} |"


def main() -> None:
    """A row per block, and one for the model."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--batch", type=int, default=1)
    arguments.add_argument("--seconds", type=float, default=2)
    arguments.add_argument("--activation", choices=ACTIVATIONS, default="relu6")
    arguments.add_argument("--layers", type=int, choices=(2, 3), default=3)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    print(f"| {options.batch} images, {options.threads} threads | one by one, ms | in one pass, ms | ratio | fastest |")
    print("|---|---:|---:|---:|---:|")
    for side, channels, between, results, stride in BLOCKS:
        x = torch.randn(options.batch, channels, side, side).to(memory_format=torch.channels_last)
        title = f"{side}x{side}, {channels} to {between} to {results}, stride {stride}"
        model = block(channels, between, results, stride, options.activation, options.layers)
        print(row(title, model, (x,), options.seconds), flush=True)
    model, inputs = MODELS["mobilenet_v2"].make(options.batch)
    print(row("MobileNetV2", model, inputs, 2 * options.seconds))


if __name__ == "__main__":
    torch.manual_seed(0)
    with torch.inference_mode():
        main()
