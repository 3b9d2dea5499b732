"""Times models of the zoo with and without some passes of ipex, in turn:

    PYTHONPATH=build/zoo-packages OMP_NUM_THREADS=1 python -m benchmarks.without_passes timm/convnextv2_pico \
        --passes split_ternary rewrite_vector_norm

Processor time of the fastest of many calls with one thread; above 1 the passes gain.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch

import ipex

from .in_turn import CLOCKS, times_in_turn
from .zoo.catalogue import Recipe, make


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--passes", nargs="+", required=True, help="names as `python -m ipex --passes` lists them")
    parser.add_argument("--seconds", type=float, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.models:
        model, inputs = make(Recipe(name, seed=0))
        with torch.no_grad():
            traced = torch.jit.trace(model, inputs, check_trace=False, strict=False)
            ways = [ipex.jit_optimize(traced, disable=options.passes), ipex.jit_optimize(traced)]
            times = times_in_turn(options.seconds, [partial(way, *inputs) for way in ways], CLOCKS["core"])
        without, with_passes = (min(own) * 1e3 for own in times)
        print(f"{name}: {without:.2f} ms without, {with_passes:.2f} with, {without / with_passes:.2f}", flush=True)


if __name__ == "__main__":
    main()
