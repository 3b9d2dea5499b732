"""Runs cases in child processes, for a case may crash or hang the one that it is in.

A child is a fork of this process, which has imported torch but computed nothing. It is replaced after some hundred
cases, because TorchScript never forgets a compiled module.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from op_database.cases import Case
from op_database.check import Optimize, Verdict, check

CASES_PER_CHILD = 300
SECONDS_PER_CASE = 60.0
_fork = multiprocessing.get_context("fork")


def run_all(cases: Sequence[Case], jobs: int, optimize: Optimize, on_verdict: Callable[[Case, Verdict], None]) -> None:
    """Tell `on_verdict`, in this thread, what becomes of each case."""
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Case, Verdict]] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)

    def serve() -> None:
        child = _Child(optimize)
        while True:
            try:
                case = waiting.get_nowait()
            except queue.Empty:
                return child.close()
            done.put((case, child.run(case)))

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for _ in cases:
        on_verdict(*done.get())
    for thread in threads:
        thread.join()


class _Child:
    def __init__(self, optimize: Optimize) -> None:
        self._optimize = optimize
        self._process: Any = None
        self._connection: Connection | None = None
        self._done = 0

    def run(self, case: Case) -> Verdict:
        if self._process is None or self._done >= CASES_PER_CHILD:
            self._start()
        assert self._connection is not None
        self._done += 1
        try:
            self._connection.send(case)
            if self._connection.poll(SECONDS_PER_CASE):
                return self._connection.recv()  # type: ignore[no-any-return]
            ended = f"more than {SECONDS_PER_CASE:g} s"
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self.close()
        return Verdict("crash", ended)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        self.close()
        self._connection, theirs = _fork.Pipe()
        self._process = _fork.Process(target=self._serve, args=(theirs, self._connection), daemon=True)
        self._process.start()
        theirs.close()
        self._done = 0

    def _serve(self, connection: Connection, of_parent: Connection) -> None:
        of_parent.close()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # torch writes warnings there
        while True:
            try:
                case = connection.recv()
            except EOFError:
                return
            try:
                verdict = check(case, self._optimize)
            except Exception as error:  # a defect of this suite: seen as wrong
                verdict = Verdict("wrong", f"the suite itself raises {type(error).__name__}: {error}")
            connection.send(verdict)
