"""Times a model of `python -m ipex bench` alone, and while another process keeps one of the cores busy. Prints a table:

OMP_WAIT_POLICY=PASSIVE python benchmarks/busy_neighbour.py mobilenet_v2 --threads 2

OpenMP reads its environment once, as the program starts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

import torch

import ipex
from in_turn import times_in_turn
from ipex.bench.models import MODELS


def main() -> None:
    """Run both, for all the threads and for one."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("model", choices=MODELS)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--seconds", type=float, default=6)
    options = arguments.parse_args()
    model, inputs = MODELS[options.model].make(1)
    traced = torch.jit.trace(model, inputs, check_trace=False)
    frozen, optimized = torch.jit.freeze(traced), ipex.jit_optimize(traced)
    print(f"{options.model}, mean ms of a call, OMP_WAIT_POLICY={os.environ.get('OMP_WAIT_POLICY', 'unset')}")
    print("| threads | alone: frozen | ipex | beside a busy process: frozen | ipex |\n|---|---|---|---|---|")
    for threads in dict.fromkeys([options.threads, 1]):
        torch.set_num_threads(threads)
        means: list[float] = []
        for is_busy in (False, True):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if is_busy else None
            times = times_in_turn(options.seconds, [lambda: frozen(*inputs), lambda: optimized(*inputs)])
            means += [1e3 * statistics.mean(own) for own in times]
            if busy:
                busy.kill()
        print(f"| {threads} | {' | '.join(f'{mean:.3g}' for mean in means)} |")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
