"""Conclusions from times: medians, ratios of pairs, who is the best peer."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from .backends import OURS
from .results import Cell, Measurement, Results

BEHIND = 0.97  # a ratio under this is no noise


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles around it."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class BestPeer:
    """The fastest of the others in a cell, and how many times as long as ours it takes."""

    cell: Cell
    peer: Measurement
    ratio: Spread
    fastest: float  # the same of the fastest calls, of whichever peer had it: what the machine did shows least there


def spread(values: list[float]) -> Spread:
    """Median and quartiles."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def ratio(backend: Measurement, ours: Measurement) -> Spread:
    """Divide the times of each round, theirs by ours: what the machine did meanwhile hits both. Above 1, we won."""
    return spread([theirs / mine for theirs, mine in zip(backend.round_seconds, ours.round_seconds)])


def best_peer(cell: Cell) -> BestPeer | None:
    """Find the peer with the least ratio; None if there are no times to compare."""
    ours = cell.of(OURS)
    peers = [m for m in cell.measurements if m.is_peer and m.counts and m is not ours]
    if ours is None or not ours.counts or not peers:
        return None
    ratios = [(ratio(peer, ours), peer) for peer in peers]
    least, peer = min(ratios, key=lambda pair: pair[0].median)
    fastest = min((m.fastest_seconds for m in peers if m.fastest_seconds), default=math.nan)
    return BestPeer(cell, peer, least, fastest / (ours.fastest_seconds or math.nan))


def best_peers(results: Results) -> list[BestPeer]:
    """Of all cells that have one."""
    return [best for best in map(best_peer, results.cells) if best is not None]


def geometric_mean(values: list[float]) -> float:
    """The mean of ratios."""
    return math.exp(statistics.fmean(map(math.log, values)))
