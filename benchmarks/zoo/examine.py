"""Examines one model in a process of its own, which has to be ready in time."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipex.bench import machine
from ipex.bench.process import Process, WorkerFailed

from .peers import ratios_of_peers
from .row import Row


@dataclass(frozen=True)
class Effort:
    """What to do with each model, and for how long. Without `seconds` nothing is timed."""

    threads: int
    seed: int
    seconds: float | None
    limit_seconds: float
    peers: tuple[str, ...]
    log: Path


def examine(name: str, effort: Effort) -> Row:
    """Build it, optimise it, compare, time, profile, and time its peers."""
    row = Row(name, effort.threads, effort.seed, load_average=machine.load_average())
    with tempfile.TemporaryDirectory(prefix="ipex-zoo-") as folder:
        process = Process(effort.threads, Path(folder), effort.log, worker="benchmarks.zoo.worker")
        try:
            _examine(row, process, effort, Path(folder))
        finally:
            process.end(at_once=True)
        if effort.peers and row.status == "ok":
            row.peers = ratios_of_peers(Path(folder), effort.peers, effort.threads, effort.limit_seconds, effort.log)
    return row


def _examine(row: Row, process: Process, effort: Effort, folder: Path) -> None:
    orders: list[tuple[str, dict[str, Any]]] = [
        ("build", {"name": row.name, "seed": effort.seed, "threads": effort.threads}),
        ("optimise", {}),
    ]
    if effort.seconds is not None:
        orders += [("time", {"seconds": effort.seconds}), ("profile", {})]
    if effort.peers:
        orders += [("write", {"folder": str(folder)})]
    end = time.monotonic() + effort.limit_seconds
    for order, arguments in orders:
        try:
            answer = process.ask(order, end - time.monotonic(), **arguments)
        except WorkerFailed as error:
            row.status, row.note = "left out" if order in ("build", "write") else "failed", f"{order}: {error}"
            return
        for key, value in answer.items():
            setattr(row, key, value)
        if row.status != "ok":
            return
