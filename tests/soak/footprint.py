"""What a process holds: resident memory, threads, open descriptors. Whether it grows."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import statistics
import time
from dataclasses import astuple, dataclass
from pathlib import Path

import torch

import ipex

# A real leak is that of a model's weights, a packed copy, a cached primitive or a result: tens of KB or more each time.
M_ARENA_MAX = -8  # of malloc.h
MOST_KB_PER_CYCLE = 50.0


@dataclass(frozen=True)
class Sample:
    """The process at one moment."""

    seconds: float
    kilobytes: float
    threads: int
    descriptors: int


def one_arena() -> None:
    """Let all threads share one heap: else each has its own, whose gaps look like growth."""
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def sample(threads: int) -> Sample:
    """Give back what is kept for later, and look."""
    torch.set_num_threads(threads)
    torch.zeros(1 << 18).add_(1)  # a region of OpenMP's, whose team gets the size that it has from now on
    gc.collect()
    ipex.empty_cache()
    ctypes.CDLL(None).malloc_trim(0)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    counts = [len(os.listdir(f"/proc/self/{what}")) for what in ("task", "fd")]
    return Sample(time.monotonic(), resident / 1024, *counts)


def slope(x: list[float], y: list[float]) -> float:
    """Fit a line by least squares, and return what it rises by."""
    return statistics.linear_regression(x, y).slope


@dataclass(frozen=True)
class Row:
    """One figure: its mean in the first and the last quarter, its slope over the second half, and what is wrong.

    `floor_per_cycle` is by how much its lowest in the last quarter lies above that in the third.
    """

    name: str
    first: float
    last: float
    per_minute: float
    per_cycle: float
    floor_per_cycle: float
    fault: str

    def __str__(self) -> str:
        name, *figures, fault = astuple(self)
        return f"{name:12}" + "".join(f"{figure:15.1f}" for figure in figures) + (f"  {fault}" if fault else "  ok")


TITLES = ("first quarter", "last quarter", "per minute", "per cycle", "floor's")
HEADER = f"{'':12}" + "".join(f"{title:>15}" for title in TITLES)


def rows(samples: list[Sample]) -> list[Row]:
    """Judge memory by its slopes per cycle, which are the same on a slow machine, and counts by whether they grew.

    Gaps in the heap come and go, by a MB or two. They move the slope of few cycles, and the floor less.
    """
    found = []
    quarter, half = max(1, len(samples) // 4), samples[len(samples) // 2 :]
    for name, key in (("memory, KB", "kilobytes"), ("threads", "threads"), ("descriptors", "descriptors")):
        all_values = [float(getattr(s, key)) for s in samples]
        first, last, values = all_values[:quarter], all_values[-quarter:], all_values[-len(half) :]
        per_minute = 60 * slope([s.seconds for s in half], values)
        per_cycle = slope([float(i) for i in range(len(half))], values)
        floor = (min(last) - min(values[:-quarter])) / quarter
        fault = ""
        if key == "kilobytes" and min(per_cycle, floor) > MOST_KB_PER_CYCLE:
            fault = f"GROWS: more than {MOST_KB_PER_CYCLE:.0f} KB a cycle"
        if key != "kilobytes" and min(last) > max(first):
            fault = "GROWS: always more in the last quarter than in the first"
        found.append(Row(name, statistics.mean(first), statistics.mean(last), per_minute, per_cycle, floor, fault))
    return found
