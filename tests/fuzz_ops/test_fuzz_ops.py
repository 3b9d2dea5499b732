"""A sample of what `make fuzz-ops` runs in full, and that it sees what it looks for."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fuzz_ops.guarded import guarded, lies_in_its_storage

RUN = [sys.executable, "-W", "ignore", Path(__file__).parent / "run.py"]


def test_ops_survive_damaged_arguments():
    options = ["--cases", "1500", "--models", "100", "--seed", os.environ.get("IPEX_FUZZ_SEED", "1")]
    done = subprocess.run([*RUN, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1500 cases" in done.stdout


@pytest.mark.parametrize("places", [0, 1])
def test_a_place_beyond_a_guarded_tensor_ends_the_process(places):
    x = torch.randn(7, 9)
    for seed in range(8):  # some end at a page, some begin there
        y = guarded(x, random.Random(seed))
        assert torch.equal(x, y)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            for place in (-4, 7 * 9 * 4) if places else (0, 7 * 9 * 4 - 4):
                ctypes.string_at(y.data_ptr() + place, 4)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        assert (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV) == bool(places)


def test_a_view_beyond_its_storage_is_seen():
    x = torch.randn(4, 4)
    assert lies_in_its_storage(x.t())
    x.untyped_storage().resize_(32)
    assert not lies_in_its_storage(x)
