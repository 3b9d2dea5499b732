"""Times a model of timm with and without some passes of ipex, in turn:

    PYTHONPATH=build/zoo-packages OMP_NUM_THREADS=1 python -m benchmarks.without_passes convnextv2_pico \
        --passes split_ternary rewrite_vector_norm

Processor time of the fastest of many calls with one thread; above 1 the passes gain.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch

import ipex

from .in_turn import CLOCKS, times_in_turn
from .zoo import timm_models


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--passes", nargs="+", required=True, help="names as `python -m ipex --passes` lists them")
    parser.add_argument("--seconds", type=float, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.models:
        model = timm_models.build(name).eval()
        inputs = timm_models.inputs(model)
        with torch.no_grad():
            ways = [ipex.jit_optimize(model, *inputs, disable=options.passes), ipex.jit_optimize(model, *inputs)]
            times = times_in_turn(options.seconds, [partial(way, *inputs) for way in ways], CLOCKS["core"])
        without, with_passes = (min(own) * 1e3 for own in times)
        print(f"{name}: {without:.1f} ms without, {with_passes:.1f} with, {without / with_passes:.2f}", flush=True)


if __name__ == "__main__":
    main()
