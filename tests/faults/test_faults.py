"""A sample of what `make faults` runs in full, and that what goes wrong is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from faults.injecting import run_preloaded

HERE = Path(__file__).parent
RUN = [sys.executable, "-W", "ignore", HERE / "run.py"]

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler here")


# A child that is made during calls of other threads hung once in some 200 times, at a lock of torch's (forks.py). `make
# faults` goes on with these, and this sample leaves them out until they have run for long.
@pytest.mark.parametrize(
    ("of", "cases", "actions"),
    [("allocations", 24, ""), ("interrupts", 16, ""), ("forks", 12, "before calls|between calls")],
)
def test_a_sample(of: str, cases: int, actions: str):
    options = ["--of", of, "--cases", str(cases), "--seed", os.environ.get("IPEX_FUZZ_SEED", "1"), "--actions", actions]
    done = subprocess.run([*RUN, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cases} cases" in done.stdout


def test_what_goes_wrong_is_told(capfd: pytest.CaptureFixture[str]):
    assert run_preloaded(str(HERE / "planted.py"), []) == 0
    told = capfd.readouterr().out
    for wrong in (
        "first call: a wrong value: wrong value",
        "first call: another error: not an error of memory: ValueError: no",
        "first call: fails for good: the same again raises: RuntimeError: out of memory",
        "first call: writes: the caller's tensors are others",
        "first call: keeps: leaks heap",
        "first call: dies: SIGSEGV",
    ):
        assert wrong in told
    summary = told[told.index("planted: 7 cases: ") :].splitlines()[0]
    assert "'wrong': 6" in summary
    assert "'right': 1" in summary
