"""Times two builds of ipex in turn, on the models of `ipex bench`, or on a sample of the zoo:

    python benchmarks/two_builds.py BEFORE AFTER --models resnet50 bert_base --threads 1
    python benchmarks/two_builds.py BEFORE AFTER --zoo 40 --seed 28127 --jobs 8

BEFORE and AFTER are folders that hold a package ipex, as `pip install --target` leaves them. Each build has a process
of its own, which optimises the model and then waits: one of the two computes at a time. Above 1 the second is faster.
With one thread the times are of its processor, which others on the machine disturb less.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


def make(name: str, seed: int) -> tuple[Any, tuple[Any, ...]]:
    """Return a model and its inputs. A name with a slash is one of the zoo."""
    from ipex.bench.models import MODELS

    if "/" not in name:
        return MODELS[name].make(MODELS[name].batches[0])
    from zoo import catalogue

    if why := catalogue.why_left_out(name):
        raise catalogue.LeftOut(why)
    return catalogue.make(catalogue.Recipe(name, seed))


def worker(name: str, seed: int, threads: int, seconds: float) -> None:
    """Optimise a model; then, for each line on standard input, answer with the median of its calls."""
    import torch

    import ipex

    torch.set_num_threads(threads)
    clock = time.thread_time if threads == 1 else time.perf_counter
    model, inputs = make(name, seed)
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, inputs, check_trace=False, strict=False))
        del model
        for _ in range(5):
            optimized(*inputs)
        print("ready", flush=True)
        for _ in sys.stdin:
            times, end = [], clock() + seconds
            while clock() < end or len(times) < 3:
                start = clock()
                optimized(*inputs)
                times.append(clock() - start)
            time.sleep(0.02)  # threads that look out for more work go to sleep before the other build computes
            print(statistics.median(times), flush=True)


def start(folder: str, name: str, options: argparse.Namespace) -> subprocess.Popen[str]:
    """Start the worker of a build."""
    command = [sys.executable, "-W", "ignore", __file__, "--worker", name, "--seed", str(options.seed)]
    command += ["--threads", str(options.threads), "--seconds", str(options.seconds)]
    environment = {**os.environ, "PYTHONPATH": str(Path(folder).resolve())}
    silent = subprocess.DEVNULL if options.zoo else None
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=silent, text=True, env=environment
    )


def answer(process: subprocess.Popen[str]) -> str:
    """Let a worker compute, and return what it says."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def compare(name: str, options: argparse.Namespace) -> float | None:
    """Return how many times faster the second build is, as the median of the rounds. None where a build did not run."""
    processes = [start(folder, name, options) for folder in options.builds]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                return None
        rounds = [[float(answer(process)) for process in processes] for _ in range(options.rounds)]
    finally:
        for process in processes:
            process.communicate()
    ratios = [before / after for before, after in rounds]
    before, after = (statistics.median(times) * 1e3 for times in zip(*rounds))
    print(
        f"{name:14} {before:9.2f} ms {after:9.2f} ms   {statistics.median(ratios):5.2f}   "
        f"({min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )
    return statistics.median(ratios)


def compare_all(names: list[str], wanted: int, options: argparse.Namespace) -> list[float]:
    """Compare models in this order, `options.jobs` at a time on cores of their own, until so many were compared."""
    found: list[float] = []
    left, lock = iter(names), threading.Lock()

    def work(cores: set[int]) -> None:
        os.sched_setaffinity(0, cores)  # of this thread, and of the processes that it starts
        while True:
            with lock:
                name = next(left, None) if len(found) < wanted else None
            if name is None:
                return
            ratio = compare(name, options)
            with lock:
                if ratio is None:
                    print(f"{name} did not run in one of the builds", file=sys.stderr)
                else:
                    found.append(ratio)

    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // options.jobs)
    workers = [threading.Thread(target=work, args=({*cores[i * share :][:share]},)) for i in range(options.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


def main() -> None:
    """Compare two builds, or be the worker of one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="*", metavar="BUILD")
    parser.add_argument("--models", nargs="+", default=["resnet50", "mobilenet_v2", "bert_base", "gpt2_step"])
    parser.add_argument("--zoo", type=int, default=0, help="in their place so many models of the zoo, drawn")
    parser.add_argument("--seed", type=int, default=0, help="of the draw, and of weights")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="models at a time, each on cores of its own")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each build's turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker, options.seed, options.threads, options.seconds)
    if len(options.builds) != 2:
        parser.error("expected two builds")
    names, wanted = options.models, len(options.models)
    if options.zoo:
        from zoo import catalogue

        libraries = [library for library in catalogue.LIBRARIES if not catalogue.missing(library)]
        names, wanted = catalogue.in_order(libraries, options.seed), options.zoo
    found = compare_all(names, wanted, options)
    if len(found) < wanted:
        sys.exit(f"expected {wanted} models, got {len(found)}")
    print(
        f"{len(found)} models: geometric mean {math.exp(statistics.fmean(map(math.log, found))):.3f}, "
        f"least {min(found):.2f}"
    )


if __name__ == "__main__":
    main()
