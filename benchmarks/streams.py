"""Requests per second of one model: ipex.StreamPool against other ways to keep all cores busy, in turn.

    python benchmarks/streams.py resnet50 --cores 16 --plans 1x16 4x4 16x1

A plan NxM is N streams of M threads. The ways:

    pool NxM        ipex.StreamPool
    one caller      the optimised model, called by one thread that uses all cores
    threads NxM     N Python threads, torch.set_num_threads(M) in each
    processes NxM   N processes with OMP_NUM_THREADS=M, each with the model for itself
    stock NxM       N Python threads, the frozen TorchScript model
    onnxruntime NxM one session with M threads of its own, called by N Python threads: N sessions
    openvino        PERFORMANCE_HINT=THROUGHPUT and its own choice of streams, an AsyncInferQueue
    crowd           ipex.StreamPool, fed by 4 times as many callers as cores

Peers that are not installed are left out. Each way has a process of its own, which makes itself ready and then computes
only in its turn. Prints Markdown: requests per second, the median of the turns, and the median of the ratios to the
first pool.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

Plan = tuple[int, int]


def rate(seconds: float, callers: int, call: Callable[[int], object]) -> float:
    """Return how many calls per second some callers make in a loop; each says its number."""
    counts, end = [0] * callers, time.perf_counter() + seconds

    def run(caller: int) -> None:
        while time.perf_counter() < end:
            call(caller)
            counts[caller] += 1

    start = time.perf_counter()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a model of `ipex bench` as frozen TorchScript, and its inputs."""
    import torch

    from ipex.bench.models import MODELS

    model, inputs = MODELS[name].make(1)
    with torch.no_grad():
        return torch.jit.freeze(torch.jit.trace(model, inputs, check_trace=False, strict=False)), inputs


def pool(name: str, plan: Plan, callers: int) -> Callable[[float], float]:
    """ipex.StreamPool, fed by one thread that keeps its queue full, or by many callers that wait."""
    import ipex

    traced, inputs = made(name)
    streams = ipex.StreamPool(ipex.jit_optimize(traced), streams=plan[0], threads_per_stream=plan[1])
    if callers:
        return lambda seconds: rate(seconds, callers, lambda _: streams(*inputs))

    def keep_busy(seconds: float) -> float:
        start, waiting, count = time.perf_counter(), list[Future[Any]](), 0
        while time.perf_counter() < start + seconds:
            waiting.append(streams.submit(*inputs))
            if len(waiting) > 3 * plan[0]:
                waiting.pop(0).result()
                count += 1
        for future in waiting:
            future.result()
        return (count + len(waiting)) / (time.perf_counter() - start)

    return keep_busy


def called_by_threads(name: str, plan: Plan, optimize: bool) -> Callable[[float], float]:
    """N Python threads that call one module."""
    import torch

    import ipex

    traced, inputs = made(name)
    module = ipex.jit_optimize(traced) if optimize else traced
    torch.set_num_threads(plan[1])

    def initialise() -> None:
        torch.set_num_threads(plan[1])

    callers = ThreadPoolExecutor(plan[0], initializer=initialise)

    def run(seconds: float) -> float:
        end = time.perf_counter() + seconds

        def loop(_: int) -> int:
            count = 0
            with torch.no_grad():
                while time.perf_counter() < end:
                    module(*inputs)
                    count += 1
            return count

        start = time.perf_counter()
        return sum(callers.map(loop, range(plan[0]))) / (time.perf_counter() - start)

    return run


def processes(name: str, plan: Plan) -> Callable[[float], float]:
    """N processes: each is this file, with one caller."""
    workers = [start("one", name, (1, plan[1]), {"OMP_NUM_THREADS": str(plan[1])}) for _ in range(plan[0])]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()

    def run(seconds: float) -> float:
        for worker in workers:
            tell(worker, seconds)
        return sum(heard(worker) for worker in workers)

    return run


def onnx_runtime(name: str, plan: Plan) -> Callable[[float], float]:
    """N sessions with M threads each."""
    from ipex.bench.backends.backend import Job
    from ipex.bench.backends.onnx_runtime import OnnxRuntime
    from ipex.bench.models import MODELS

    model, inputs = MODELS[name].make(1)
    with tempfile.TemporaryDirectory() as folder:
        backend, job = OnnxRuntime(), Job(lambda: model, inputs, plan[1], Path(folder))
        calls = [backend.prepare(job)]
        calls += [backend.load(backend.source, job) for _ in range(plan[0] - 1)]
    return lambda seconds: rate(seconds, plan[0], lambda i: calls[i]())


def openvino(name: str, cores: int) -> Callable[[float], float]:
    """OpenVINO's throughput mode."""
    from ipex.bench.backends.backend import Job
    from ipex.bench.backends.openvino import OpenVINO
    from ipex.bench.models import MODELS

    ov: Any = importlib.import_module("openvino")
    model, inputs = MODELS[name].make(1)
    with tempfile.TemporaryDirectory() as folder:
        backend = OpenVINO()
        backend.prepare(Job(lambda: model, inputs, cores, Path(folder)))
    settings = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": cores, "INFERENCE_PRECISION_HINT": "f32"}
    queue = ov.AsyncInferQueue(ov.Core().compile_model(backend.model, "CPU", settings))
    arrays = [x.numpy() for x in inputs]

    def run(seconds: float) -> float:
        begin, count = time.perf_counter(), 0
        while time.perf_counter() < begin + seconds:
            queue.start_async(arrays, share_inputs=True)
            count += 1
        queue.wait_all()
        return count / (time.perf_counter() - begin)

    return run


def ready(way: str, name: str, plan: Plan) -> Callable[[float], float]:
    """Make a way ready."""
    if way in ("pool", "crowd"):
        return pool(name, plan, 4 * plan[0] * plan[1] if way == "crowd" else 0)
    if way in ("threads", "stock"):
        return called_by_threads(name, plan, way == "threads")
    if way == "processes":
        return processes(name, plan)
    if way == "onnxruntime":
        return onnx_runtime(name, plan)
    if way == "openvino":
        return openvino(name, plan[0] * plan[1])
    return called_by_threads(name, (1, plan[0] * plan[1]), optimize=True)  # one caller


def worker(way: str, name: str, plan: Plan) -> None:
    """Be ready, then compute for as many seconds as each line of the input says."""
    run = ready(way, name, plan)
    run(0.3)
    print("ready", flush=True)
    for line in sys.stdin:
        print(run(float(line)), flush=True)


def start(way: str, name: str, plan: Plan, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the process of a way."""
    command = [sys.executable, "-W", "ignore", __file__, name, "--worker", json.dumps([way, plan])]
    everything = {**os.environ, **(environment or {})}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=everything)


def tell(process: subprocess.Popen[str], seconds: float) -> None:
    """Let a process compute."""
    assert process.stdin is not None
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> float:
    """Return its requests per second."""
    assert process.stdout is not None
    return float(process.stdout.readline())


def ways_of(plans: list[Plan], names: list[str], cores: int) -> list[tuple[str, Plan]]:
    """All ways with all plans; some have none."""
    found: list[tuple[str, Plan]] = [("pool", plan) for plan in plans]
    for name in names:
        if name in ("onnxruntime", "openvino") and importlib.util.find_spec(name) is None:
            print(f"{name} is not installed.\n")
        elif name in ("one", "openvino"):
            found.append((name, (1, cores)))
        else:
            found += [(name, plan) for plan in (plans[-1:] if name in ("crowd", "processes") else plans)]
    return found


def table(name: str, ways: list[tuple[str, Plan]], rounds: int, seconds: float) -> None:
    """Print a model's table."""
    running = []
    for (way, plan), process in [((way, plan), start(way, name, plan)) for way, plan in ways]:
        assert process.stdout is not None
        if all(line != "ready\n" for line in iter(process.stdout.readline, "")):
            print(f"{way} {plan[0]}x{plan[1]} did not run.\n", flush=True)
        else:
            running.append((f"{way} {plan[0]}x{plan[1]}", process))
    rates: dict[str, list[float]] = {label: [] for label, _ in running}
    for _ in range(rounds):
        for label, process in running:
            tell(process, seconds)
            rates[label].append(heard(process))
    print(f"### {name}\n\n| way | requests/s | of the first, median of {rounds} turns |\n|---|---:|---:|")
    first = rates[running[0][0]]
    for label, process in running:
        process.communicate()
        ratio = statistics.median(a / b for a, b in zip(rates[label], first))
        print(f"| {label} | {statistics.median(rates[label]):.1f} | {ratio:.2f} |")
    print(flush=True)


def main() -> None:
    """Print a table per model, or be one way of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="of `ipex bench`")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--plans", nargs="+", metavar="NxM", help="by default from all streams to one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    ways = ["one", "threads", "stock", "processes", "crowd", "onnxruntime", "openvino"]
    parser.add_argument("--ways", nargs="*", default=ways, choices=ways)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        way, (streams, threads) = json.loads(options.worker)
        return worker(way, options.models[0], (streams, threads))
    given = options.plans or [f"{options.cores // m}x{m}" for m in (1, 2, 4, options.cores) if options.cores % m == 0]
    plans = [(int(n), int(m)) for n, m in (plan.split("x") for plan in dict.fromkeys(given))]
    for name in options.models:
        table(name, ways_of(plans, options.ways, options.cores), options.rounds, options.seconds)


if __name__ == "__main__":
    main()
