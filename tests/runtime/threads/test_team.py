"""Regions run in OpenMP's team where aten makes one again and again between them, and else end it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
RUNTIME = HERE.parents[2] / "runtime"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))


@pytest.mark.skipif(COMPILER is None or not RUNTIME.is_dir(), reason="no C++ compiler, or no source tree here")
def test_a_team_beside_regions(tmp_path):
    program, torchs = tmp_path / "team", Path(torch.__file__).parent / "include"
    sources = [HERE / "team.cpp", RUNTIME / "threads/team.cpp"]
    options = ["-std=c++20", "-O1", "-fopenmp", f"-I{RUNTIME}", f"-I{torchs}"]
    built = subprocess.run([COMPILER, *options, *sources, "-o", program], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
