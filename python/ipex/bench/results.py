"""What was measured, as it is kept in JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Measurement:
    """One backend in one cell. `round_seconds` has the median call of each round."""

    backend: str
    title: str
    is_peer: bool
    tolerance: float
    status: str = "ok"  # or: wrong, failed, not installed, not applicable
    note: str = ""
    difference: float | None = None
    prepare_seconds: float | None = None
    first_call_seconds: float | None = None
    warm_up_seconds: float | None = None
    peak_memory_bytes: float | None = None
    round_seconds: list[float] = field(default_factory=list)
    fastest_seconds: float | None = None
    calls: int = 0
    loaded: dict[str, float | None] | None = None

    @property
    def counts(self) -> bool:
        """Whether there are times, of right results."""
        return self.status == "ok" and bool(self.round_seconds)


@dataclass
class Cell:
    """A model, a batch and a number of threads."""

    model: str
    title: str
    batch: int
    threads: int
    operations: float
    measurements: list[Measurement] = field(default_factory=list)

    def of(self, backend: str) -> Measurement | None:
        """Find a backend's measurement."""
        return next((m for m in self.measurements if m.backend == backend), None)


@dataclass
class Results:
    """A run of the benchmark."""

    machine: dict[str, str]
    settings: dict[str, Any]
    peak: dict[str, float]  # operations per second, by number of threads
    cells: list[Cell] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # models that do not run at all, and why

    def write(self, path: Path) -> None:
        """Write JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def read_results(path: Path) -> Results:
    """Read what `write` wrote."""
    data = json.loads(path.read_text())
    data["cells"] = [
        Cell(**{**cell, "measurements": [Measurement(**m) for m in cell["measurements"]]}) for cell in data["cells"]
    ]
    return Results(**data)
