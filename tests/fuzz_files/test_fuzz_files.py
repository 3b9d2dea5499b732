"""A sample of what `make fuzz-files` runs in full, and that children that die are told."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import torch

from children import run_in_children
from fuzz_files.damage import damaged

RUN = [sys.executable, "-W", "ignore", Path(__file__).parent / "run.py"]


def test_damaged_models_are_refused_or_run():
    options = ["--cases", "800", "--seed", os.environ.get("IPEX_FUZZ_SEED", "1")]
    done = subprocess.run([*RUN, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "800 cases" in done.stdout


def test_what_is_damaged_has_right_checksums_and_is_another_file():
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(3, 4)), buffer)
    changed = [damaged(buffer.getvalue(), random.Random(seed)) for seed in range(40)]
    assert len(set(changed)) > 30
    for model in changed:
        with zipfile.ZipFile(io.BytesIO(model)) as archive:
            assert archive.testzip() is None


def test_a_child_that_dies_or_hangs_is_told_and_the_others_go_on(capsys):
    def case(index: int) -> str:
        if index == 7:
            os.kill(os.getpid(), signal.SIGSEGV)
        return "bad" if index == 9 else "good"

    wrong = run_in_children(case, good=("good",), name_of=lambda index: f"case of {index}", title="test", cases=300)
    assert wrong == {"case of 7: SIGSEGV": [7], "bad": [9]}
    assert "test: 300 cases: {'good': 298, 'wrong': 2}" in capsys.readouterr().out
