"""Times calls in turn, so that whatever else the machine does meets all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

WARM_UP = 3  # TorchScript compiles again after the first calls
LEAST_ROUNDS = 5

Clock = Callable[[], float]
# With one thread, "core" leaves out the time in which other processes had the core; "process" does so for calls that
# compute in threads of their own.
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "core": time.thread_time, "process": time.process_time}


def times_in_turn(
    seconds: float, calls: Sequence[Callable[[], object]], clock: Clock = time.perf_counter
) -> list[list[float]]:
    """Seconds that each call took by the clock, round by round."""
    for call in calls:
        for _ in range(WARM_UP):
            call()
    found: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found[0]) < LEAST_ROUNDS:
        for call, own in zip(calls, found):
            start = clock()
            call()
            own.append(clock() - start)
    return found


def median_ratio(slow: list[float], fast: list[float]) -> float:
    """Of the rounds."""
    return statistics.median(a / b for a, b in zip(slow, fast))
