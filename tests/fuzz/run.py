"""Compare random models, optimised, with eager:

    python tests/fuzz/run.py --cases 100000 --seed 7 --jobs 2

Ends with a summary. Every failure is shrunk and written as a program that runs by itself into --failures.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import resource
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the cases change it themselves
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # more processes than cores: a thread that waits would use one up
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz import planted
from fuzz.report import summary, write_program
from fuzz.session import Failure, Session
from fuzz.worker import SECONDS_PER_CASE, Worker, ending

SECONDS_BETWEEN_LINES = 10.0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="how many to run")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, jobs and build give the same cases")
    parser.add_argument("--jobs", type=int, default=1, help="processes that draw and run cases")
    parser.add_argument("--part", type=int, default=0, help="begin at this part of the seed, which a failure names")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="where failing programs go")
    parser.add_argument("--strict", action="store_true", help="what torch.jit.freeze gets wrong too is a failure")
    parser.add_argument("--plant", choices=planted.NAMES, help="a bug to put in: the fuzzer must find it")
    parser.add_argument(
        "--plant-each",
        nargs="+",
        choices=planted.NAMES[1:],
        metavar="BUG",
        help="each of these, with --cases and unshrunk",
    )
    return parser.parse_args(arguments)


def job(options: argparse.Namespace, index: int, messages: Any) -> None:
    """One process: tells of its counts now and then, and of each failure."""
    worker, last = Worker(options.plant), [time.monotonic()]

    def on_failure(failure: Failure) -> bool:
        command = f"{Path(__file__).name} --seed {options.seed} --part {failure.seed.split('/')[1]} --cases 1000"
        path = write_program(failure, options.failures, command)
        messages.put(("failure", index, f"{failure.verdict.category}: {failure.verdict.detail}\n    {path}"))
        return not options.stop

    def on_progress(counts: Counter[str]) -> None:
        if time.monotonic() - last[0] > SECONDS_BETWEEN_LINES / 2:
            last[0] = time.monotonic()
            messages.put(("counts", index, Counter(counts)))

    session = Session(worker, on_failure, on_progress, options.strict)
    share = options.cases // options.jobs + (index < options.cases % options.jobs)
    try:
        session.run(options.seed, options.part + index, options.jobs, share, time.monotonic() + options.seconds)
    finally:
        worker.close()
        messages.put(("counts", index, session.counts))
        messages.put(("done", index, None))


def plant(name: str, seed: int, cases: int) -> tuple[str, str | None, int]:
    """After how many cases a bug is found, and as what."""
    found: list[Failure] = []
    worker = Worker(name, seconds_per_case=2 if name == "hang" else SECONDS_PER_CASE)
    session = Session(worker, lambda failure: bool(found.append(failure)), shrink=False)
    session.run(seed, 0, 1, cases)
    worker.close()
    return name, found[0].verdict.category if found else None, session.counts["cases"]


def plant_each(options: argparse.Namespace) -> int:
    missed = 0
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(options.jobs, mp_context=fork) as pool:
        for future in [pool.submit(plant, name, options.seed, options.cases) for name in options.plant_each]:
            name, category, cases = future.result()
            missed += category is None
            print(f"{name}: {f'{category}, found in' if category else 'MISSED in'} {cases} cases", flush=True)
    return 1 if missed else 0


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.plant_each:
        return plant_each(options)
    fork = multiprocessing.get_context("fork")  # torch is imported, nothing is computed yet: safe, and quick
    messages = fork.Queue()
    started = printed = time.monotonic()
    jobs = [fork.Process(target=job, args=(options, index, messages)) for index in range(options.jobs)]
    for process in jobs:
        process.start()
    print(f"fuzz: seed {options.seed}, {options.cases} cases, {options.jobs} jobs", flush=True)
    counts: dict[int, Counter[str]] = {}
    failures, finished = 0, set[int]()
    while len(finished) < options.jobs:
        try:
            kind, index, content = messages.get(timeout=SECONDS_BETWEEN_LINES)
        except queue.Empty:
            finished |= {index for index, process in enumerate(jobs) if process.exitcode}  # it can't tell any more
            continue
        if kind == "counts":
            counts[index] = content
        elif kind == "failure":
            failures += 1
            print(f"FAILED {content}", flush=True)
            if options.stop:
                break
        else:
            finished.add(index)
        if time.monotonic() - printed > SECONDS_BETWEEN_LINES:
            printed = time.monotonic()
            total = sum(counts.values(), Counter())
            rate = total["cases"] / (printed - started)
            print(f"{total['cases']} cases, {rate:.1f} a second, {total['failed']} failed", flush=True)
    for index, process in enumerate(jobs):
        if index not in finished:
            process.terminate()
        process.join()
        if index in finished and process.exitcode:
            failures += 1
            print(f"FAILED job {index}, which draws cases, ended with {ending(process.exitcode)}: no case is to blame")
    total = sum(counts.values(), Counter())
    print(summary(total, time.monotonic() - started))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{1000 * (used.ru_utime + used.ru_stime) / max(1, total['cases']):.0f} ms of processor time a case")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
