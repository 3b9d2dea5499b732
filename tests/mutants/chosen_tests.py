"""A pytest plugin for run.py: runs chosen tests only, and records which mutants each test reaches.

    MUTANT_TESTS=FILE       the tests to run, one a line
    MUTANT_RECORD=FILE      to which a line of JSON is added for each test: its name, seconds, outcome and mutants
    MUTANTS_REACHED=FILE    what the libraries mark, a byte for each mutant
    MUTANT_AT=FILE          in which the name of the test that runs stands, should it end the process

What is reached while a file is collected, or a fixture set up, is `shared`: by all tests of the file.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DIGITS = bytes([ord("0"), *[ord("1")] * 255])


def number_of(marks: bytes) -> int:
    """A number whose bits are the marks."""
    return int(marks.translate(DIGITS)[::-1] or b"0", 2)


class Marks:
    """The mutants that processes have reached since this was last asked."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def take(self) -> int:
        found = number_of(self._memory[:])
        self._memory[:] = bytes(len(self._memory))
        return found


class Recorder:
    def __init__(self, marks: Marks, path: str) -> None:
        self._marks, self._path = marks, path
        self._shared = 0
        self._outcome = "passed"

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        result = yield
        self._shared |= self._marks.take()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        result = yield
        self._shared |= self._marks.take()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._outcome, begin = "passed", time.monotonic()
        result = yield
        row = {"test": item.nodeid, "seconds": round(time.monotonic() - begin, 3), "outcome": self._outcome}
        with open(self._path, "a") as file:
            file.write(json.dumps({**row, "reached": f"{self._marks.take():x}", "shared": f"{self._shared:x}"}) + "\n")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed" and self._outcome != "failed":
            self._outcome = report.outcome


class Place:
    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._path.write_text(nodeid)


class Chosen:
    def __init__(self, path: str) -> None:
        self._order = {name: i for i, name in enumerate(Path(path).read_text().splitlines())}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._order])
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
        )


def pytest_configure(config: pytest.Config) -> None:
    settings = {
        name: os.environ.get(name) for name in ("MUTANT_TESTS", "MUTANT_RECORD", "MUTANTS_REACHED", "MUTANT_AT")
    }
    if settings["MUTANT_TESTS"]:
        config.pluginmanager.register(Chosen(settings["MUTANT_TESTS"]))
    if settings["MUTANT_AT"]:
        config.pluginmanager.register(Place(settings["MUTANT_AT"]))
    if settings["MUTANT_RECORD"] and settings["MUTANTS_REACHED"]:
        config.pluginmanager.register(Recorder(Marks(settings["MUTANTS_REACHED"]), settings["MUTANT_RECORD"]))
