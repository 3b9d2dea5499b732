"""Times two builds of ipex in turn, on the models of `ipex bench`:

    python benchmarks/two_builds.py BEFORE AFTER --models resnet50 bert_base --threads 1

BEFORE and AFTER are folders that hold a package ipex, as `pip install --target` leaves them. Each build has a process
of its own, which optimises the model and then waits: one of the two computes at a time. Above 1 the second is faster.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path


def worker(name: str, threads: int, seconds: float) -> None:
    """Optimise a model; then, for each line on standard input, answer with the median of its calls."""
    import torch

    import ipex
    from ipex.bench.models import MODELS

    torch.set_num_threads(threads)
    model, inputs = MODELS[name].make(MODELS[name].batches[0])
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, inputs, check_trace=False, strict=False))
        del model
        for _ in range(5):
            optimized(*inputs)
        print("ready", flush=True)
        for _ in sys.stdin:
            times, end = [], time.perf_counter() + seconds
            while time.perf_counter() < end or len(times) < 3:
                start = time.perf_counter()
                optimized(*inputs)
                times.append(time.perf_counter() - start)
            time.sleep(0.02)  # threads that look out for more work go to sleep before the other build computes
            print(statistics.median(times), flush=True)


def start(folder: str, name: str, options: argparse.Namespace) -> subprocess.Popen[str]:
    """Start the worker of a build."""
    command = [sys.executable, "-W", "ignore", __file__, "--worker", name]
    command += ["--threads", str(options.threads), "--seconds", str(options.seconds)]
    environment = {**os.environ, "PYTHONPATH": str(Path(folder).resolve())}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def answer(process: subprocess.Popen[str]) -> str:
    """Let a worker compute, and return what it says."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def compare(name: str, options: argparse.Namespace) -> list[float]:
    """Return the ratios of the rounds."""
    processes = [start(folder, name, options) for folder in options.builds]
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            sys.exit(f"{name} did not run in one of the builds")
    rounds = [[float(answer(process)) for process in processes] for _ in range(options.rounds)]
    for process in processes:
        process.communicate()
    ratios = [before / after for before, after in rounds]
    before, after = (statistics.median(times) * 1e3 for times in zip(*rounds))
    print(
        f"{name:14} {before:9.2f} ms {after:9.2f} ms   {statistics.median(ratios):5.2f}   "
        f"({min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )
    return ratios


def main() -> None:
    """Compare two builds, or be the worker of one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="*", metavar="BUILD")
    parser.add_argument("--models", nargs="+", default=["resnet50", "mobilenet_v2", "bert_base", "gpt2_step"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each build's turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker, options.threads, options.seconds)
    if len(options.builds) != 2:
        parser.error("expected two builds")
    found = [statistics.median(compare(name, options)) for name in options.models]
    print(f"geometric mean {math.exp(statistics.fmean(map(math.log, found))):.2f}, least {min(found):.2f}")


if __name__ == "__main__":
    main()
