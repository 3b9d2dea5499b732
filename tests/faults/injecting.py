"""The library of inject.cpp, built and loaded before Python, and its functions."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from by_hand import compile_by_hand

HERE = Path(__file__).parent
PRELOADED = "IPEX_FAULTS_PRELOADED"  # an environment variable


def run_preloaded(script: str, arguments: list[str]) -> int:
    """Run this script once more, in a process with the library. Return how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        library = compile_by_hand(Path(folder) / "inject.so", "-O2", "-fPIC", "-shared", HERE / "inject.cpp", "-ldl")
        environment = {**os.environ, "LD_PRELOAD": str(library), PRELOADED: "1"}
        command = [sys.executable, "-W", "ignore", script, *arguments]
        return subprocess.run(command, env=environment, check=False).returncode


def is_preloaded() -> bool:
    return PRELOADED in os.environ


class Injector:
    """Counts allocations of ipex, and lets one of them fail."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faults_disarm.restype = ctypes.c_long
        self._library.faults_frames.restype = ctypes.c_long
        self._library.faults_library.restype = ctypes.c_char_p
        self._library.faults_offset.restype = ctypes.c_size_t
        self._library.faults_heap_bytes.restype = ctypes.c_size_t
        if self._library.faults_find_libraries() < 3:
            raise RuntimeError("expected libipex_runtime, libipex and _C in this process, got fewer libraries")

    def run(self, act: Callable[[], object], failing: int = -1) -> tuple[object, BaseException | None, int]:
        """Return what an action gave, what it raised, and how many allocations it made. One fails, if any is to."""
        result, error = None, None
        self._library.faults_arm(ctypes.c_long(failing))
        try:
            result = act()
        except BaseException as raised:
            error = raised
        count = self._library.faults_disarm()
        if error is not None:
            error.__traceback__ = None  # it holds what the action had
        return result, error, count

    def has_failed(self) -> bool:
        """Whether an allocation failed in the last run."""
        return bool(self._library.faults_frames())

    def where(self, most: int = 3) -> str:
        """Places in ipex's libraries, for addr2line: where what failed was asked for, and its callers."""
        count = min(self._library.faults_frames(), most)
        library, offset = self._library.faults_library, self._library.faults_offset
        return " ".join(f"{Path(library(i).decode()).name}+{offset(i):#x}" for i in range(count))

    def heap_bytes(self) -> int:
        """How many bytes malloc has given out."""
        return int(self._library.faults_heap_bytes())
