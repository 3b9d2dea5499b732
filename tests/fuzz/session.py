"""Draws cases, has them run, counts what became of them, and shrinks those that fail."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings

from fuzz.check import Verdict
from fuzz.minimise import minimise
from fuzz.strategies import Case, cases
from fuzz.worker import Worker

CASES_PER_SEED = 1000  # a failure ends its seed: what is left of it is not drawn
SHRINK_SECONDS = 15.0  # by hypothesis, and as much again by minimise.py


class Failure(NamedTuple):
    """A failing case, shrunk."""

    case: Case
    verdict: Verdict
    seed: str


class _Failed(Exception):
    pass


class _Enough(BaseException):
    """Ends a run of hypothesis, which would go on shrinking."""


class Session:
    """`on_failure` is told of every new failure; it may stop the session by returning False.

    `strict` makes a failure of what torch.jit.freeze gets wrong too.
    """

    def __init__(
        self,
        worker: Worker,
        on_failure: Callable[[Failure], bool],
        on_progress: Callable[[Counter[str]], None] = lambda _: None,
        strict: bool = False,
        shrink: bool = True,
    ) -> None:
        self.worker, self.on_failure, self.on_progress, self.shrink = worker, on_failure, on_progress, shrink
        self.failing = ("failed", "freeze differs") if strict else ("failed",)
        self.counts: Counter[str] = Counter()
        self.known: list[tuple[str, Counter[str]]] = []

    def run(self, seed: int, first: int, step: int, count: int, deadline: float = float("inf")) -> None:
        """Run `count` cases: seeds `first`, `first + step` ... derived from `seed`, so that jobs do not overlap."""
        part = first
        while self.counts["cases"] < count and time.monotonic() < deadline:
            failure = _Part(self, f"{seed}/{part}", min(CASES_PER_SEED, count - self.counts["cases"]), deadline).run()
            part += step
            if failure is None:
                continue
            self.known.append((failure.verdict.category, features(failure.case)))
            if not self.on_failure(failure):
                return

    def is_known(self, case: Case, verdict: Verdict) -> bool:
        """Whether a failure of this kind was already found in a program that is part of this one."""
        mine = features(case)
        return any(verdict.category == category and not theirs - mine for category, theirs in self.known)


class _Part:
    """The cases of one seed."""

    def __init__(self, session: Session, seed: str, count: int, deadline: float) -> None:
        self.session, self.seed, self.count, self.deadline = session, seed, count, deadline
        self.best: tuple[Case, Verdict] | None = None
        self.failing: set[Case] = set()
        self.shrinking_since = 0.0

    def run(self) -> Failure | None:
        @hypothesis.seed(self.seed)
        @settings(
            max_examples=self.count,
            database=None,
            deadline=None,
            phases=[Phase.generate, *([Phase.shrink] if self.session.shrink else [])],
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
            report_multiple_bugs=False,
            print_blob=False,
        )
        @given(cases())
        def one(case: Case) -> None:
            # Hypothesis takes errors from different lines for different bugs: there is one line.
            if self._fails(case) if self.best is None else self._fails_smaller(case):
                raise _Failed

        # A failure that does not come again (Flaky) is told anyway.
        with contextlib.suppress(_Failed, _Enough, hypothesis.errors.Flaky):
            one()
        if self.best is None:
            return None
        if self.session.shrink:
            self.shrinking_since = time.monotonic()
            with contextlib.suppress(_Enough):
                minimise(self.best[0], self._fails_smaller)
        return Failure(*self.best, self.seed)

    def _fails(self, case: Case) -> bool:
        if time.monotonic() > self.deadline:
            raise _Enough
        verdict, counts = self.session.worker.run(case), self.session.counts
        counts["cases"] += 1
        counts[verdict.kind] += 1
        counts.update(verdict.fused)
        if verdict.category:
            counts[f"{verdict.kind}: {verdict.category}"] += 1
        self.session.on_progress(counts)
        if verdict.kind not in self.session.failing:
            return False
        if self.session.is_known(case, verdict):
            counts["failed as before"] += 1
            return False
        self.best, self.shrinking_since = (case, verdict), time.monotonic()
        self.failing.add(case)
        return True

    def _fails_smaller(self, case: Case) -> bool:
        """Later examples, which are smaller: only a failure of the same kind counts."""
        assert self.best is not None
        if case in self.failing:
            return True
        if time.monotonic() > min(self.shrinking_since, self.deadline) + SHRINK_SECONDS:
            raise _Enough
        verdict = self.session.worker.run(case)
        if verdict.kind not in self.session.failing or verdict.category != self.best[1].category:
            return False
        self.failing.add(case)
        if size(case) <= size(self.best[0]):
            self.best = case, verdict
        return True


def size(case: Case) -> int:
    return len(case.source) + 20 * len(repr(case.calls)) // 100


def features(case: Case) -> Counter[str]:
    """The ops of a program, to tell whether two failures look alike."""
    forward = "\n".join(line for line in case.source.splitlines() if not line.startswith(("import", "from")))
    return Counter(re.findall(r"(?:torch|F|nn)\.\w+|(?<!self)\.\w+(?=\()|[-+*/@]=?", forward.split("def build")[0]))
