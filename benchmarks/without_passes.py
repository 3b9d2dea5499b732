"""Times models of the zoo with and without some passes of ipex, in turn:

    PYTHONPATH=build/zoo-packages OMP_NUM_THREADS=1 python -m benchmarks.without_passes timm/convnextv2_pico \
        --passes split_ternary ipex::vector_norm

Time of the fastest of many calls, and the median over pairs of them; above 1 the passes gain. With one thread,
processor time.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch

import ipex

from .in_turn import CLOCKS, median_ratio, times_in_turn
from .zoo.catalogue import Recipe, make


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--passes", nargs="+", required=True, help="names that jit_optimize takes in `disable`")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = CLOCKS["core" if options.threads == 1 else "wall"]
    for name in options.models:
        model, inputs = make(Recipe(name, seed=0))
        with torch.no_grad():
            traced = torch.jit.trace(model, inputs, check_trace=False, strict=False)
            ways = [ipex.jit_optimize(traced, disable=options.passes), ipex.jit_optimize(traced)]
            times = times_in_turn(options.seconds, [partial(way, *inputs) for way in ways], clock)
        without, with_passes = (min(own) * 1e3 for own in times)
        ratios = f"{without / with_passes:.2f} (median {median_ratio(*times):.2f})"
        print(f"{name}: {without:.2f} ms without, {with_passes:.2f} with, {ratios}", flush=True)


if __name__ == "__main__":
    main()
