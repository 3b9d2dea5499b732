"""The times of ops in some calls, out of torch's profiler."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._explain.graphs import FinalNode


@dataclass(frozen=True)
class Measured:
    """One op in one call: its time, the median of the calls, and the shapes of its inputs."""

    microseconds: float
    shapes: tuple[tuple[int, ...], ...]
    in_aten: str = ""  # why a kernel of ours left it to aten
    kernel: str = ""  # which of an op's list took it
    rejected: tuple[str, ...] = ()  # those before in the list, each with its reason


def measure(call: Callable[[], object], nodes: Sequence[FinalNode], calls: int) -> tuple[dict[int, Measured], float]:
    """Return the measurements by the number of the node, and the median time of a call in microseconds.

    The profiler names ops, not nodes. Ops of one kind run in the order of the graph; where their number is another one,
    as with loops, they stay without a time.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(calls):
            call()
    events = sorted(profiler.events(), key=lambda event: event.time_range.start)
    whole = [e.cpu_time_total for e in events if e.cpu_parent is None and e.name == "forward"]
    by_kind: dict[str, list[Any]] = defaultdict(list)
    for event in events:
        if event.cpu_parent is not None and event.cpu_parent.name == "forward":
            by_kind[event.name].append(event)
    measured = {}
    for kind, seen in by_kind.items():
        numbers = [i for i, node in enumerate(nodes) if node.kind == kind and not node.is_nested]
        if len(seen) != calls * len(numbers) or any(n.is_nested and n.kind == kind for n in nodes):
            continue
        for place, number in enumerate(numbers):
            own = seen[place :: len(numbers)]
            measured[number] = Measured(
                statistics.median(event.cpu_time_total for event in own),
                tuple(tuple(shape) for shape in own[0].input_shapes if _is_shape(shape)),
                next((c.name.partition("in aten: ")[2] for c in own[0].cpu_children if "in aten: " in c.name), ""),
                *_choice(own[0]),
            )
    return measured, statistics.median(whole) if whole else 0.0


def _choice(event: Any) -> tuple[str, tuple[str, ...]]:
    """The kernel that took it, and those that did not: "ipex::op by this; not that: reason". The last note holds."""
    notes = [child for child in event.cpu_children if child.name.startswith("ipex::") and " by " in child.name]
    if not notes:
        return "", ()
    note = max(notes, key=lambda child: child.time_range.start).name
    kernel, *rejected = note.partition(" by ")[2].split("; not ")
    return kernel, tuple(rejected)


def _is_shape(shape: Any) -> bool:
    return bool(shape) and all(isinstance(size, int) for size in shape)
