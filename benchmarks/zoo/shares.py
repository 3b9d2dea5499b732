"""Where the time of a model goes, op by op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch

CALLS = 3

# Ops that change the layout of values and do nothing else. `copy_` does other things too: this is an upper bound.
CONVERSIONS = {
    "aten::copy_",
    "aten::clone",
    "aten::contiguous",
    "ipex::to_channels_last",
    "ipex::restore_layout",
    "ipex::rearrange",
    "ipex::copy_transposed",
    "ipex::copy_pieces",
}


def times_of_ops(call: Callable[[], object]) -> dict[str, float]:
    """Return what share of the time of all ops each op takes by itself.

    The first call does not count: the op that comes first would pay for waking the threads.
    """
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=CALLS, repeat=1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule) as profile:
        for _ in range(1 + CALLS):
            call()
            profile.step()
    times: Counter[str] = Counter()
    for event in profile.key_averages():
        if "::" in event.key:
            times[event.key] += event.self_cpu_time_total
    total = sum(times.values()) or 1
    return {op: time / total for op, time in times.most_common()}


def conversions(shares: dict[str, float]) -> float:
    """Return the share of layout conversions."""
    return sum(share for op, share in shares.items() if op in CONVERSIONS)


def in_aten(shares: dict[str, float]) -> dict[str, float]:
    """Return the ops that are left in aten, the longest first, conversions left out."""
    return {op: share for op, share in shares.items() if op.startswith("aten::") and op not in CONVERSIONS}
