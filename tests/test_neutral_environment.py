"""conftest.py: wherever and however the tests are started, they see the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import torch

STRANGE = {
    "IPEX_VERBOSE": "2",
    "IPEX_FP32_MATH_MODE": "BF32",
    "ONEDNN_VERBOSE": "1",
    "OMP_DISPLAY_ENV": "true",
    "PYTORCH_JIT": "0",
    "PYTHONWARNINGS": "default",
    "PYTHONPROFILEIMPORTTIME": "1",
    "COLUMNS": "20",
    "FORCE_COLOR": "1",
    "LANG": "de_DE.ISO-8859-1",
    "LC_MESSAGES": "de_DE",
    "TZ": "Asia/Kathmandu",
}
SIGNALS = ("INT", "TERM", "HUP", "QUIT", "CHLD")
# Says what a process that a test starts sees.
CHILD = f"""
import os, signal, torch, ipex
model = ipex.jit_optimize(torch.nn.Linear(4, 4).eval(), torch.ones(1, 4))
model(torch.ones(1, 4))
assert [s for s in {SIGNALS} if signal.getsignal(getattr(signal, "SIG" + s)) == signal.SIG_IGN] == []
"""


def test_what_tests_see():
    assert STRANGE.keys() & os.environ.keys() == set()
    assert [s for s in SIGNALS if signal.getsignal(getattr(signal, f"SIG{s}")) == signal.SIG_IGN] == []
    assert os.listdir() == []
    assert torch.jit.script(torch.nn.ReLU()).__class__ is not torch.nn.ReLU
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_they_see_it_wherever_and_however_they_are_started(tmp_path):
    paths = [os.path.relpath(path, tmp_path) for path in sys.path if path]
    environment = {**os.environ, **STRANGE, "PYTHONPATH": os.pathsep.join(paths)}
    strangely = ["sh", "-c", f'trap "" {" ".join(SIGNALS)}; umask 077; exec "$@"', "sh"]
    test = f"{Path(__file__).resolve()}::{test_what_tests_see.__name__}"
    command = [*strangely, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
