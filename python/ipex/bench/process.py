"""The parent's end of a worker: start it, give orders, wait for answers, survive its death."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class WorkerFailed(Exception):
    """The worker died, took too long, or answered that it failed."""


class Process:
    """A worker of `threads` threads, which finds the modules that this process finds, wherever it was started.

    What its libraries say goes to `log`, what they cache into `folder`.
    """

    def __init__(
        self,
        threads: int,
        folder: Path,
        log: Path,
        worker: str = "ipex.bench.worker",
        first_on_path: Sequence[str] = (),
    ) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": os.pathsep.join(filter(None, [*first_on_path, *sys.path])),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        }
        with log.open("ab") as stderr:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", worker],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                env=environment,
            )
        assert self._popen.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._popen.stdout, selectors.EVENT_READ)

    def ask(self, do: str, limit_seconds: float, **arguments: Any) -> dict[str, Any]:
        """Give an order and return the answer. WorkerFailed if there is none in time; then the process is ended."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write((json.dumps({"do": do, **arguments}) + "\n").encode())
            answer = json.loads(self._line(time.monotonic() + limit_seconds))
        except (OSError, WorkerFailed) as error:
            self.end(at_once=True)
            raise WorkerFailed(str(error)) from None
        if answer.get("status") == "failed":
            self.end(at_once=True)
            raise WorkerFailed(answer["note"])
        return dict(answer)

    def end(self, at_once: bool = False) -> None:
        """End the process: by closing its input, or by killing it."""
        if at_once:
            self._popen.kill()
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._selector.close()
        self._popen.stdout.close()

    def _line(self, deadline: float) -> bytes:
        assert self._popen.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                raise WorkerFailed("no answer in time")
            part = os.read(self._popen.stdout.fileno(), 1 << 16)
            if not part:
                code = self._popen.wait()
                raise WorkerFailed(f"the process ended: {signal.Signals(-code).name if code < 0 else f'exit {code}'}")
            line += part
        return line
