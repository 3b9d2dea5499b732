"""Runs cases in a child process, for a case may crash or hang it: torch itself does on some inputs.

The child is a fork of this process, which has imported torch but computed nothing: a new one costs milliseconds. It is
replaced after some hundred cases, because TorchScript never forgets a compiled module.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

from fuzz import planted
from fuzz.check import Verdict, check
from fuzz.stages import frozen
from fuzz.strategies import Case

CASES_PER_CHILD = 400
SECONDS_PER_CASE = 180.0  # float64's convolutions are slow, and more processes than cores slower
_fork = multiprocessing.get_context("fork")


class Worker:
    """One child at a time. `plant` names a bug of planted.py that is put into every optimised module."""

    def __init__(self, plant: str | None = None, seconds_per_case: float = SECONDS_PER_CASE) -> None:
        self._seconds = seconds_per_case
        self._optimize = planted.optimize(plant)
        self._stage = mmap.mmap(-1, 256)  # shared with the child: how far it got
        self._child: Any = None
        self._connection: Connection | None = None
        self._cases: list[Case] = []  # what this child was asked

    def run(self, case: Case) -> Verdict:
        """The verdict on a case, a crash or a hang of ipex alone being a failure."""
        answer = self._ask("check", case)
        if isinstance(answer, Verdict):
            return answer
        before = self._cases
        stock = self._ask("stock", case)
        if stock != "survived":
            return Verdict("both crashed", answer, f"stock TorchScript: {stock}")
        again = self._ask("check", case)
        if isinstance(again, Verdict) and again.kind != "failed":
            if self._ends_without_ipex(before):
                return Verdict("both crashed", answer, "stock TorchScript after others: they overwrite memory")
            return Verdict("failed", "crash, not seen again", answer)
        if isinstance(again, Verdict):
            return again
        return Verdict("failed", again.split(":")[0], again)  # crash or hang

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.join()
            self._child = None

    def _ends_without_ipex(self, cases: list[Case]) -> bool:
        """Whether a child does not survive these one after the other: ops of torch overwrite what is not theirs."""
        self.close()
        return any(self._ask("stock", case) != "survived" for case in cases)

    def _ask(self, what: str, case: Case) -> Any:
        """What the child answers, or a text that says how it ended."""
        if self._child is None or len(self._cases) >= CASES_PER_CHILD:
            self._start()
        assert self._connection is not None
        self._cases.append(case)
        try:
            self._connection.send((what, case))
            if self._connection.poll(self._seconds):
                return self._connection.recv()
            ended = f"hang: more than {self._seconds:g} s in stage '{self._stage_text()}'"
        except (EOFError, OSError):
            self._child.join()
            ended = f"crash: {ending(self._child.exitcode)} in stage '{self._stage_text()}'"
        self.close()
        return ended

    def _stage_text(self) -> str:
        return bytes(self._stage[:]).split(b"\0")[0].decode()

    def _start(self) -> None:
        self.close()
        self._connection, theirs = _fork.Pipe()
        self._child = _fork.Process(target=self._serve, args=(theirs, self._connection), daemon=True)
        self._child.start()
        theirs.close()
        self._cases = []

    def _serve(self, connection: Connection, of_parent: Connection) -> None:
        of_parent.close()
        _fill_freed_memory()
        # torch writes warnings and traces of crashes where the summary is printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

        def stage(text: str) -> None:
            data = text.encode()[:255]
            self._stage[: len(data) + 1] = data + b"\0"

        while True:
            try:
                what, case = connection.recv()
            except EOFError:
                return
            if what == "stock":
                for _ in range(3):  # what is used after it was freed shows up later
                    check(case, lambda module, **_: frozen(module), stage)
                answer: Any = "survived"
            else:
                try:
                    answer = check(case, self._optimize, stage)
                except Exception as error:  # a defect of the fuzzer itself: seen in the summary
                    answer = Verdict("failed", "fuzzer", f"{type(error).__name__}: {error}")
            connection.send(answer)


def ending(code: int) -> str:
    """How a process ended, by its exit code."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _fill_freed_memory() -> None:
    """Make reading what was freed fail at once, where the C library can (glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(-6, 0xA5)  # M_PERTURB
