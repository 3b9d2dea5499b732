"""Times all backends on one model, batch and number of threads: each in its process, in turn, round after round."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .backends import find
from .process import Process, WorkerFailed
from .results import Cell, Measurement

LEAST_ROUNDS = 5
Say = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """How long to measure. `seconds` are per backend and cell; a slow model gets LEAST_ROUNDS all the same."""

    seconds: float
    rounds: int
    log: Path
    limit_seconds: float = 600  # for making one model ready in one backend

    @property
    def least_rounds(self) -> int:
        """No fewer rounds than this."""
        return min(self.rounds, LEAST_ROUNDS)


def measure(cell: Cell, backends: list[str], folder: Path, effort: Effort, loads: bool, say: Say) -> None:
    """Fill the cell. With `loads`, also save each model and load it in a process that has seen nothing else."""
    running: dict[str, Process] = {}
    try:
        for name in backends:
            backend = find(name)
            measurement = Measurement(name, backend.title or name, backend.is_peer, backend.tolerance)
            cell.measurements.append(measurement)
            if backend.missing():
                measurement.status, measurement.note = "not installed", ", ".join(backend.missing())
            else:
                running[name] = Process(cell.threads, folder, effort.log)
                _prepare(running[name], measurement, cell, folder, effort)
                if measurement.status == "ok" and loads:
                    _save_and_load(running[name], measurement, cell, folder, effort)
                if measurement.status != "ok":
                    running.pop(name).end(at_once=True)
            say(f"{measurement.title}: {_outcome(measurement)}")
        _rounds(cell, running, effort, say)
        _check_again(cell, running, effort, say)
    finally:
        for process in running.values():
            process.end(at_once=True)


def _prepare(process: Process, measurement: Measurement, cell: Cell, folder: Path, effort: Effort) -> None:
    try:
        answer = process.ask(
            "prepare", effort.limit_seconds, backend=measurement.backend, folder=str(folder), threads=cell.threads
        )
    except WorkerFailed as error:
        answer = {"status": "failed", "note": str(error)}
    for key in ("status", "note", "difference", "prepare_seconds", "first_call_seconds", "warm_up_seconds"):
        setattr(measurement, key, answer.get(key, getattr(measurement, key)))
    measurement.peak_memory_bytes = answer.get("peak_memory_bytes")


def _save_and_load(process: Process, measurement: Measurement, cell: Cell, folder: Path, effort: Effort) -> None:
    saved = folder / "saved"
    saved.mkdir()
    asked = {
        "path": str(saved / "model"),
        "backend": measurement.backend,
        "folder": str(folder),
        "threads": cell.threads,
    }
    other: Process | None = None
    try:
        if not process.ask("save", effort.limit_seconds, path=asked["path"])["saved"]:
            return
        other = Process(cell.threads, folder, effort.log)
        answer = other.ask("load", effort.limit_seconds, **asked)
    except WorkerFailed as error:
        # A process that failed has ended; without the first one there is nothing to time.
        measurement.note = f"{'saving' if other is None else 'loading'}: {error}"
        measurement.status = "failed" if other is None else measurement.status
        return
    finally:
        shutil.rmtree(saved)
    other.end()
    if answer["status"] == "ok":
        keys = ("load_seconds", "first_call_seconds", "peak_memory_bytes")
        measurement.loaded = {key: answer[key] for key in keys}
    else:
        measurement.note = f"wrong when loaded: off by {answer['difference']:.2g}"


def _rounds(cell: Cell, running: dict[str, Process], effort: Effort, say: Say) -> None:
    """Each round starts with the next backend, so that none always follows the same one."""
    start = time.monotonic()
    budget = effort.seconds * len(running)
    done = 0
    while done < effort.rounds and (done < effort.least_rounds or time.monotonic() - start < budget):
        names = list(running)
        for name in names[done % len(names) :] + names[: done % len(names)] if names else []:
            measurement = cell.of(name)
            assert measurement is not None
            try:
                answer = running[name].ask("round", effort.limit_seconds, seconds=effort.seconds / effort.rounds)
            except WorkerFailed as error:
                measurement.status, measurement.note = "failed", f"in round {done + 1}: {error}"
                measurement.round_seconds.clear()
                running.pop(name).end(at_once=True)
                continue
            measurement.round_seconds.append(answer["seconds"])
            measurement.fastest_seconds = min(answer["fastest_seconds"], measurement.fastest_seconds or math.inf)
            measurement.calls += answer["calls"]
        done += 1
    say(f"{done} rounds in {time.monotonic() - start:.1f} s")


def _check_again(cell: Cell, running: dict[str, Process], effort: Effort, say: Say) -> None:
    for name, process in running.items():
        measurement = cell.of(name)
        assert measurement is not None
        try:
            answer = process.ask("check", effort.limit_seconds)
        except WorkerFailed as error:
            answer = {"status": "failed", "note": f"after the rounds: {error}"}
        if answer["status"] != "ok":
            measurement.status, measurement.note = answer["status"], answer.get("note", "after the rounds")
            measurement.difference = answer.get("difference", measurement.difference)
            measurement.round_seconds.clear()
            say(f"{measurement.title}: {_outcome(measurement)}")


def _outcome(measurement: Measurement) -> str:
    if measurement.status == "ok":
        first_call = 1e3 * (measurement.first_call_seconds or 0)
        return (
            f"ready in {measurement.prepare_seconds:.1f} s, first call {first_call:.1f} ms {measurement.note}".rstrip()
        )
    if measurement.status == "wrong":
        return f"WRONG: off by {measurement.difference:.2g}, more than {measurement.tolerance:.0e}; not timed"
    return f"{measurement.status}: {measurement.note}"
