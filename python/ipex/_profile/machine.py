"""What the machine reaches: products per second, and bytes per second from memory."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

ARRAY_BYTES = 128 * 2**20  # far more than caches hold


@dataclass(frozen=True)
class Machine:
    """The limits of this machine with a number of threads."""

    threads: int
    operations_per_second: float
    bytes_per_second: float

    def least_seconds(self, operations: float | None, moved: float | None) -> float:
        """Return the time below which the machine can't do this much work."""
        return max((operations or 0) / self.operations_per_second, (moved or 0) / self.bytes_per_second)


def measure(seconds: float = 0.5) -> Machine:
    """Measure both, for some time each."""
    from ..bench.machine import peak_operations_per_second  # importing ipex leaves the benchmark out

    return Machine(
        torch.get_num_threads(), peak_operations_per_second(seconds=seconds), bytes_per_second(seconds=seconds)
    )


def bytes_per_second(seconds: float) -> float:
    """Return the best of copies of a large array: what is read and what is written count."""
    source = torch.ones(ARRAY_BYTES // 4)
    target = torch.empty_like(source)
    shortest = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or shortest == float("inf"):
        start = time.perf_counter()
        target.copy_(source)
        shortest = min(shortest, time.perf_counter() - start)
    return 2.0 * ARRAY_BYTES / shortest
