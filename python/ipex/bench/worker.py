"""A process that does one thing at a time when told to: `python -m ipex.bench.worker`, driven by process.py.

Orders and answers are lines of JSON on stdin and stdout. What libraries print goes to stderr, a log. An answer says
also that the process is idle, so that another one may be timed.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from . import machine
from .backends import find
from .backends.backend import Backend, Call, Job, NotApplicable, tensors
from .reference import largest_difference, read, write
from .subject import Subject

Answer = dict[str, Any]
WARM_UP_CALLS = 4
WARM_UP_SECONDS = 0.3


class Worker:
    """Carries out orders; each method is one."""

    backend: Backend
    job: Job
    call: Call
    expected: list[torch.Tensor]

    def __init__(self) -> None:
        self.memory_at_start: float | None = None

    def reference(self, name: str, batch: int, inputs: list[str], folder: str) -> Answer:
        """Make what all backends share."""
        return {"operations": write(Subject(name, batch, tuple(inputs)), Path(folder))}

    def peak(self, threads: int) -> Answer:
        """Measure what matrix products reach."""
        torch.set_num_threads(threads)
        return {"operations_per_second": machine.peak_operations_per_second()}

    def prepare(self, backend: str, folder: str, threads: int) -> Answer:
        """Make a model ready in a backend, call it until it is warm, check what it returns."""
        self._start(backend, folder, threads)
        answer: Answer = {}
        building: list[float] = []
        start = time.perf_counter()
        try:
            self.call = self.backend.prepare(replace(self.job, build=lambda: _timed(self.job.build, building)))
        except NotApplicable as why:
            return {"status": "not applicable", "note": str(why)}
        answer["prepare_seconds"] = time.perf_counter() - start - sum(building)
        with self.backend.context():
            answer["first_call_seconds"] = seconds_of(self.call)
            start = time.perf_counter()
            calls = 0
            while calls < WARM_UP_CALLS or time.perf_counter() - start < WARM_UP_SECONDS:
                self.call()
                calls += 1
            answer["warm_up_seconds"] = time.perf_counter() - start
        return {**answer, **self.check(), **self._memory()}

    def save(self, path: str) -> Answer:
        """Save the prepared model."""
        return {"saved": self.backend.save(Path(path))}

    def load(self, backend: str, folder: str, threads: int, path: str) -> Answer:
        """Load a saved model, as a server does that has only this."""
        self._start(backend, folder, threads)
        answer: Answer = {}
        start = time.perf_counter()
        self.call = self.backend.load(Path(path), self.job)
        answer["load_seconds"] = time.perf_counter() - start
        with self.backend.context():
            answer["first_call_seconds"] = seconds_of(self.call)
            for _ in range(3):
                self.call()
        return {**answer, **self.check(), **self._memory()}

    def round(self, seconds: float) -> Answer:
        """Call for about so long, at least once; return the median of the calls.

        A first call is not counted: while others ran, caches went cold, threads to sleep, and the system may have taken
        back memory.
        """
        times: list[float] = []
        with self.backend.context():
            self.call()
            start = time.perf_counter()
            while not times or time.perf_counter() - start + times[-1] / 2 < seconds:
                times.append(seconds_of(self.call))
        return {
            "seconds": statistics.median(times),
            "fastest_seconds": min(times),
            "mean_seconds": statistics.mean(times),
            "seconds_of_99_percent": sorted(times)[int(0.99 * (len(times) - 1))],
            "calls": len(times),
        }

    def check(self) -> Answer:
        """Compare with eager."""
        with self.backend.context():
            actual = tensors(self.call())
        difference = largest_difference(actual, self.expected)
        status = "ok" if difference <= self.backend.tolerance else "wrong"
        return {"status": status, "difference": difference}

    def _start(self, backend: str, folder: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.backend = find(backend)
        self.backend.import_packages()
        self.memory_at_start = machine.peak_memory()
        self.job, self.expected = read(Path(folder), threads)

    def _memory(self) -> Answer:
        now = machine.peak_memory()
        if now is None or self.memory_at_start is None:
            return {"peak_memory_bytes": None}
        return {"peak_memory_bytes": now - self.memory_at_start}


def _timed(build: Callable[[], torch.nn.Module], seconds: list[float]) -> torch.nn.Module:
    start = time.perf_counter()
    model = build()
    seconds.append(time.perf_counter() - start)
    return model


def seconds_of(call: Call) -> float:
    """Time one call. Its result is freed outside."""
    start = time.perf_counter()
    result = call()
    elapsed = time.perf_counter() - start
    del result
    return elapsed


def main(worker: object) -> None:
    """Answer orders until there are no more. Each is a method of `worker`."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)
    with torch.no_grad():
        for line in sys.stdin:
            order = json.loads(line)
            try:
                answer = getattr(worker, order.pop("do"))(**order)
            except Exception as error:
                traceback.print_exc()
                text = " ".join(str(error).split()) or "no message"
                answer = {"status": "failed", "note": f"{type(error).__name__}: {text[:200]}"}
            machine.wait_until_idle()
            answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(Worker())
