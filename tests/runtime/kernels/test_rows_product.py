"""Kernels that multiply rows read and write at any distance of rows: no op shows all of that yet, so C++ does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNTIME = HERE.parents[2] / "runtime"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.skipif(not RUNTIME.is_dir(), reason="no source tree beside the tests")
def test_rows_and_results_that_lie_apart(tmp_path):
    program = tmp_path / "rows_product"
    options = ["-std=c++20", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover", f"-I{RUNTIME}"]
    subprocess.run([COMPILER, *options, str(HERE / "rows_product.cpp"), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    cases, wrong = map(int, re.match(r"(\d+) cases, (\d+) wrong elements", done.stdout).groups())
    assert (cases > 1000, wrong) == (True, 0)
