"""How far the zoo has come: a bar on a terminal, else a line per model."""

from __future__ import annotations

import sys
import time

from .row import Row

WIDTH = 30


class Progress:
    """Counts models; `total` includes those of earlier runs."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.done, self.new = total, done, 0
        self.start = time.monotonic()

    def show(self, row: Row) -> None:
        """Say what became of a model."""
        self.new += 1
        self.done += row.status != "left out"
        self._print(f"{row.name} {outcome(row)}")

    def _print(self, text: str) -> None:
        minutes = (time.monotonic() - self.start) / 60
        head = f"{self.done}/{self.total} {minutes:.0f} min"
        if not sys.stderr.isatty():
            print(f"{head} {text}", file=sys.stderr, flush=True)
            return
        filled = WIDTH * self.done // max(1, self.total)
        print(f"\r\033[K[{'#' * filled:.<{WIDTH}}] {head} {text[:80]}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the bar's line."""
        if sys.stderr.isatty():
            print(file=sys.stderr)


def outcome(row: Row) -> str:
    """Return a few words."""
    if row.status != "ok":
        return f"{row.status}: {row.note}" if row.note else row.status
    return f"{row.ratio:.2f}" if row.ratio else "ok"
