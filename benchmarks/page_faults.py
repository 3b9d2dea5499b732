"""Times a batch of one of the models of `python -m ipex bench`, and counts page faults and memory. Prints a line:

python benchmarks/page_faults.py mobilenet_v2 --batch 8 --threads 2

With MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ set to 4294967296 malloc gives nothing back.
"""

from __future__ import annotations

import argparse
import resource
import statistics

import torch

import ipex
from in_turn import times_in_turn
from ipex.bench.models import MODELS


def usage() -> resource.struct_rusage:
    """What the process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF)


def main() -> None:
    """Run the model alone."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("model", choices=MODELS)
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--seconds", type=float, default=4)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    model, inputs = MODELS[options.model].make(options.batch)
    optimized = ipex.jit_optimize(torch.jit.trace(model, inputs, check_trace=False))
    for _ in range(3):
        optimized(*inputs)
    before = usage().ru_minflt
    times = times_in_turn(options.seconds, [lambda: optimized(*inputs)])[0]
    faults = (usage().ru_minflt - before) / len(times)
    median = 1e3 * statistics.median(times)
    print(f"{options.model}, batch {options.batch}, {options.threads} threads: ", end="")
    print(f"median {median:.3g} ms, {faults:.0f} page faults a call, at most {usage().ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
