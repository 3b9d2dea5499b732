"""What became of each optimisation, for the report and for warnings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from .._explain import Decision, Report


class Notes:
    """Decisions, in the order in which they were taken."""

    def __init__(self) -> None:
        self._decisions: list[Decision] = []
        self._failures: list[tuple[str, str]] = []

    def applied(self, knob: str, what: str, reason: str, into: str = "") -> None:
        """Note that a knob changed something. `into` is the module that does it now."""
        self._decisions.append(Decision(knob, what, True, reason, into=into))

    def declined(self, knob: str, what: str, reason: str) -> None:
        """Note that a knob left something as it was."""
        self._decisions.append(Decision(knob, what, False, reason))

    def failed(self, knob: str, reason: str) -> None:
        """Note that a whole knob could not be used. It is warned of."""
        self.declined(knob, "the model", reason)
        self._failures.append((knob, reason))

    def count(self, knob: str) -> int:
        """Return how often a knob changed something."""
        return sum(d.applied and d.pass_name == knob for d in self._decisions)

    @contextmanager
    def of(self, knob: str) -> Iterator[None]:
        """Run one optimisation. What it raises leaves the model running, without that optimisation."""
        try:
            yield
        except Exception as error:
            self.failed(knob, f"{type(error).__name__}: {error}")

    def report(self) -> Report:
        """Return the decisions."""
        return Report(tuple(self._decisions))

    def warn(self, stacklevel: int) -> None:
        """Warn once of each optimisation that failed."""
        for knob, reason in self._failures:
            warnings.warn(f"ipex.optimize: {knob} is left out. {reason}", stacklevel=stacklevel + 1)
