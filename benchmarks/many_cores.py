"""Where the time of a model goes with 1, 2, 4 .. threads: per kind of op, against its limit and against one thread.

    python benchmarks/many_cores.py gpt2_step resnet50 --threads 1 4 8 16

MODELS are names of `ipex bench`. Each number of threads has a process of its own. For each kind of op:

- ms at T: the sum over the ops of that kind in one call, each the median of the calls that torch's profiler saw;
- limit: the least time for its products and bytes, at the arithmetic peak and at the rate at which the most threads of
  the run read memory, both measured in that process. What lies in caches may take less;
- efficiency at T: the time with the fewest threads, times these, over T times the time with T.

"between ops" is what a call takes beside its ops, with the profiler on: the interpreter's time and the profiler's own.
The last three rows have how many parallel regions of ipex a call opens, without the profiler: what they take, what of
that the calling thread waits for others, and what a call takes outside of them, aten's parallel ops included.
`--by-size` has a row for each size of weights and inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

BYTES_TO_READ = 256 << 20  # far more than caches hold
SECONDS_TO_READ = 0.3


@dataclass
class Kind:
    """What the ops of one kind took in one call, and what they had to do."""

    count: int = 0
    milliseconds: float = 0.0
    operations: float = 0.0
    bytes: float = 0.0
    limit: float = 0.0  # ms, of each op alone


@dataclass
class Run:
    """A model with one number of threads."""

    threads: int
    milliseconds: float  # a call without the profiler, the median
    profiled: float
    operations_per_second: float
    bytes_per_second: float
    regions: int
    within: float  # ms of a call in regions, the median
    waiting: float
    kinds: dict[str, Kind] = field(default_factory=dict)


def bytes_read_per_second() -> float:
    """Return the best rate at which all threads together read a large array."""
    import torch

    array = torch.ones(BYTES_TO_READ // 4)
    shortest, end = float("inf"), time.perf_counter() + SECONDS_TO_READ
    while time.perf_counter() < end or shortest == float("inf"):
        start = time.perf_counter()
        array.sum()
        shortest = min(shortest, time.perf_counter() - start)
    return BYTES_TO_READ / shortest


def worker(name: str, threads: int, calls: int, seconds: float, by_size: bool) -> None:
    """Optimise a model, profile it, and print what it took."""
    import torch

    import ipex
    from ipex._C import time_regions
    from ipex.bench.models import MODELS

    torch.set_num_threads(threads)
    model, inputs = MODELS[name].make(MODELS[name].batches[0])
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, inputs, check_trace=False, strict=False))
        del model
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < calls:
            start = time.perf_counter()
            optimized(*inputs)
            times.append(time.perf_counter() - start)
    counts, within, waiting = zip(*(time_regions(lambda: optimized(*inputs)) for _ in times))
    regions = [counts[-1], *(statistics.median(part) * 1e3 for part in (within, waiting))]
    profile = ipex.profile(optimized, inputs, calls=calls)
    peak, rate = profile.machine.operations_per_second, max(profile.machine.bytes_per_second, bytes_read_per_second())
    kinds: dict[str, Kind] = defaultdict(Kind)
    for op in profile.ops:
        sizes = [*(layer.weight for layer in profile.report.final[op.number].layers), *op.shapes[:2]]
        key = f"{op.op} {' '.join('x'.join(map(str, size)) for size in sizes)}" if by_size else op.op
        kind = kinds[key]
        kind.count += 1
        kind.milliseconds += op.microseconds / 1e3
        kind.operations += op.operations or 0
        if op.became != "view":
            kind.bytes += op.bytes or 0
            kind.limit += 1e3 * max((op.operations or 0) / peak, (op.bytes or 0) / rate)
    found = {key: vars(kind) for key, kind in kinds.items()}
    whole = statistics.median(times) * 1e3
    print(json.dumps([threads, whole, profile.microseconds / 1e3, peak, rate, *regions, found]))


def measured(name: str, threads: int, options: argparse.Namespace) -> Run:
    """Run a worker."""
    command = [sys.executable, "-W", "ignore", __file__, "--worker", name, "--threads", str(threads)]
    command += ["--calls", str(options.calls), "--seconds", str(options.seconds)]
    command += ["--by-size"] if options.by_size else []
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    *numbers, kinds = json.loads(done.stdout.splitlines()[-1])
    return Run(*numbers, kinds={key: Kind(**kind) for key, kind in kinds.items()})


def row(label: str, count: str, times: list[float | None], limit: float | None, threads: list[int]) -> str:
    """Return a line of the table: times, the limit, and what each time is against that with the fewest threads."""
    first, last = times[0], times[-1]
    cells = [label, count, *("" if t is None else f"{t:.3f}" for t in times)]
    cells.append("" if not limit else f"{limit:.3f}")
    cells.append("" if not limit or not last else f"{limit / last:.0%}")
    for t, n in zip(times[1:], threads[1:]):
        cells.append(f"{first * threads[0] / (n * t):.0%}" if first and t else "")
    return f"| {' | '.join(cells)} |"


def table(title: str, runs: list[Run]) -> list[str]:
    """Return a model's table, the kinds that take most with the most threads first."""
    threads = [run.threads for run in runs]
    last = runs[-1]
    head = ["op", "count", *(f"ms at {n}" for n in threads), f"limit at {last.threads}", "of limit"]
    head += [f"efficiency at {n}" for n in threads[1:]]
    lines = [f"### {title}", "", f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    limit = sum(kind.limit for kind in last.kinds.values())
    lines.append(row("a call, without the profiler", "1", [run.milliseconds for run in runs], limit, threads))
    for key in sorted(last.kinds, key=lambda key: -last.kinds[key].milliseconds):
        own = last.kinds[key]
        times = [run.kinds[key].milliseconds if key in run.kinds else None for run in runs]
        lines.append(row(key, str(own.count), times, own.limit, threads))
    beside = [max(run.profiled - sum(k.milliseconds for k in run.kinds.values()), 0.0) for run in runs]
    lines.append(row("between ops", "", list(beside), None, threads))
    lines.append(row("in regions", str(last.regions), [run.within for run in runs], None, threads))
    lines.append(row("of that waiting", "", [run.waiting for run in runs], None, threads))
    lines.append(row("outside of regions", "", [run.milliseconds - run.within for run in runs], None, threads))
    rates = (
        f"{r.threads}: {r.operations_per_second / 1e9:.0f} GFLOP/s, {r.bytes_per_second / 1e9:.0f} GB/s" for r in runs
    )
    return [*lines, "", f"This machine reaches, by threads, {'; '.join(rates)}.", ""]


def main() -> None:
    """Print a table per model, or be the worker of one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--calls", type=int, default=15, help="that the profiler sees")
    parser.add_argument("--seconds", type=float, default=1.0, help="of calls without the profiler")
    parser.add_argument("--by-size", action="store_true", help="a row for each size")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    if options.worker:
        return worker(options.worker, options.threads[0], options.calls, options.seconds, options.by_size)
    from ipex.bench.machine import describe
    from ipex.bench.models import MODELS

    unknown = [name for name in options.models if name not in MODELS]
    if unknown or not options.models:
        parser.error(f"expected models out of {', '.join(MODELS)}, got {', '.join(unknown) or 'none'}")
    print(", ".join(f"{key} {value}" for key, value in describe().items()) + "\n", flush=True)
    for name in options.models:
        runs = [measured(name, threads, options) for threads in sorted(options.threads)]
        print("\n".join(table(MODELS[name].title, runs)), flush=True)


if __name__ == "__main__":
    main()
