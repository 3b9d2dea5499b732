"""Times 3x3 convolutions with ReLU as ipex and as aten compute them on channels-last images, called in turn.

aten's are oneDNN's direct convolutions. The errors are root mean squares, against float64, relative to the results'.
With --models: the largest error of whole models instead, relative to the largest output. Prints Markdown:

    OMP_NUM_THREADS=1 python benchmarks/winograd.py [--models]

The figures of docs/decisions/convolutions.md come from here.
"""

from __future__ import annotations

import copy
import statistics
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from in_turn import median_ratio, times_in_turn
from ipex.bench.models import MODELS

LAYERS = [  # side of the image, channels, columns, and the dilation where there is one, and the groups
    (14, 32, 32),
    (14, 64, 64),
    (28, 16, 32),
    (28, 32, 32),
    (28, 64, 64),
    (28, 128, 32),
    (28, 128, 128),
    (56, 32, 32),
    (56, 64, 64),
    (56, 128, 32),
    (56, 128, 128),
    (56, 256, 256),
    (112, 64, 64),
    (112, 128, 128),
    (224, 64, 64),
    (14, 64, 64, 2),
    (56, 64, 64, 2),
    (28, 128, 128, 4),
    (64, 128, 128, 8),
    (65, 256, 256, 2),
    (65, 256, 256, 4),
    (65, 256, 256, 12),  # not taken: tiles are half empty
    (28, 256, 256, 2),  # from here on each call transforms the weight
    (28, 512, 512),
    (32, 512, 512, 4),
    (65, 512, 512, 2),
    (65, 2048, 512),
    (56, 224, 224, 1, 2),
    (28, 448, 448, 1, 4),
    (28, 240, 240, 1, 2),
    (56, 256, 256, 1, 8),
    (28, 36, 36),  # from here on channels fill no registers
    (14, 72, 72),
    (28, 144, 144),
    (56, 24, 48),
    (28, 64, 20),
]
SECONDS_PER_LAYER = 2.0


def error(actual: Tensor, exact: Tensor) -> float:
    """Root mean square, relative."""
    return float(((actual - exact).pow(2).mean() / exact.pow(2).mean()).sqrt())


def layers() -> None:
    """A row per layer."""
    print("| image, channels | aten, ms | ipex, ms | aten / ipex | ipex, direct GFLOP/s | error, aten | error, ipex |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for side, channels, columns, *own in LAYERS:
        dilation, groups = own + [1] * (2 - len(own))
        convolution = nn.Conv2d(channels, columns, 3, padding=dilation, dilation=dilation, groups=groups).eval()
        x = torch.randn(1, channels, side, side).relu().to(memory_format=torch.channels_last)
        optimized = ipex.jit_optimize(torch.jit.trace(nn.Sequential(convolution, nn.ReLU()).eval(), x))
        stock = copy.deepcopy(convolution).to(memory_format=torch.channels_last)
        calls = (lambda stock=stock, x=x: F.relu_(stock(x)), lambda run=optimized, x=x: run(x))
        aten, ours = times_in_turn(SECONDS_PER_LAYER, calls)
        exact = convolution.double()(x.double()).relu()
        errors = [f"{error(result, exact):.1e}" for result in (F.relu(stock(x)), optimized(x))]
        rate = 18e-9 * side * side * channels * columns / groups / statistics.median(ours)
        columns_of_row = [f"{1e3 * statistics.median(own):.3f}" for own in (aten, ours)]
        columns_of_row += [f"{median_ratio(aten, ours):.2f}", f"{rate:.0f}"]
        name = f"{side}x{side}, {channels} to {columns}" + (f", dilation {dilation}" if dilation > 1 else "")
        name += f", groups {groups}" if groups > 1 else ""
        print(f"| {name} | {' | '.join(columns_of_row + errors)} |", flush=True)


def models() -> None:
    """A row per model."""
    print("| model | eager | ipex |")
    print("|---|---:|---:|")
    for name in ("resnet50", "densenet121", "unet", "vgg16"):
        model, inputs = MODELS[name].make(1)
        eager = model(*inputs)
        optimized = ipex.jit_optimize(torch.jit.trace(model, inputs, check_trace=False))(*inputs)
        exact = model.double()(*(x.double() for x in inputs))
        errors = [f"{float((result - exact).abs().max() / exact.abs().max()):.1e}" for result in (eager, optimized)]
        print(f"| {MODELS[name].title} | {' | '.join(errors)} |", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    with torch.inference_mode():
        models() if "--models" in sys.argv[1:] else layers()
