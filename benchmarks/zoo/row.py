"""What was found out about one model, a line of JSON each: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Row:
    """One model. Times are the fastest calls', `ratio` is the median of paired ratios, frozen over ipex."""

    name: str
    threads: int
    seed: int
    status: str = "ok"  # or: left out, failed, wrong values, wrong strides, ...
    note: str = ""
    parameters: int | None = None
    difference: float | None = None  # from eager
    error: float | None = None  # from float64, where the difference from eager is large; and eager's
    eagers_error: float | None = None
    optimise_seconds: float | None = None
    frozen_seconds: float | None = None
    ipex_seconds: float | None = None
    ratio: float | None = None
    conversions: float | None = None  # share of the time of all ops
    in_aten: float | None = None
    leftovers: list[tuple[str, float]] = field(default_factory=list)
    peers: dict[str, float | None] = field(default_factory=dict)  # peer over ipex
    load_average: float | None = None

    def answers(self, threads: int, seed: int, timed: bool, peers: tuple[str, ...]) -> bool:
        """Whether there is nothing more to find out."""
        is_complete = (not timed or self.ratio is not None) and set(peers) <= self.peers.keys()
        return (self.threads, self.seed) == (threads, seed) and (is_complete or self.status != "ok")

    @property
    def library(self) -> str:
        """timm, torchvision or transformers."""
        return self.name.partition("/")[0]

    @property
    def is_bad(self) -> bool:
        """Whether ipex gave something wrong, or nothing."""
        return self.status not in ("ok", "left out")


def read_rows(path: Path) -> list[Row]:
    """Read a file of rows, which may be absent. Of several about a model, the last one counts."""
    rows = [Row(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    return list({(row.name, row.threads): row for row in rows}.values())


def append_row(path: Path, row: Row) -> None:
    """Add a row to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(row)) + "\n")
