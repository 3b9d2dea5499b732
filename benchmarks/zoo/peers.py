"""The peers of `ipex bench` on a model of the zoo: each in a process of its own, in turn."""

from __future__ import annotations

from pathlib import Path

from ipex.bench.backends import OURS
from ipex.bench.cell import Effort, measure
from ipex.bench.results import Cell
from ipex.bench.statistics import ratio

SECONDS = 1.5
ROUNDS = 10


def ratios_of_peers(
    folder: Path, peers: tuple[str, ...], threads: int, limit_seconds: float, log: Path
) -> dict[str, float | None]:
    """Return time of peer over time of ipex; None for a peer that can't run the model, or whose results are wrong."""
    cell = Cell("zoo", "zoo", 1, threads, 0)
    effort = Effort(SECONDS, ROUNDS, log, limit_seconds)
    measure(cell, [OURS, *peers], folder, effort, loads=False, say=lambda _: None)
    ours = cell.of(OURS)
    assert ours is not None
    found = {m.backend: m for m in cell.measurements if m is not ours}
    return {name: ratio(m, ours).median if m.counts and ours.counts else None for name, m in found.items()}
