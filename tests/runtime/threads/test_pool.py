"""The pool runs every block once, whoever calls, whatever is thrown, and whether or not its threads come."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNTIME = HERE.parents[2] / "runtime"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))


@pytest.mark.skipif(COMPILER is None or not RUNTIME.is_dir(), reason="no C++ compiler, or no source tree here")
@pytest.mark.parametrize("sanitizer", [[], ["-fsanitize=thread"], ["-fsanitize=address,undefined"]], ids=str)
def test_regions(tmp_path, sanitizer):
    program = tmp_path / "pool"
    sources = [HERE / "pool.cpp", RUNTIME / "threads/pool.cpp", RUNTIME / "threads/worker.cpp"]
    options = ["-std=c++20", "-O1", "-pthread", f"-I{RUNTIME}", f"-I{RUNTIME}/include", *sanitizer]
    built = subprocess.run([COMPILER, *options, *sources, "-o", program], capture_output=True, text=True, check=False)
    if sanitizer and built.returncode:
        pytest.skip(f"this compiler has no {sanitizer[0]}")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


PROGRAM = """
import os, pathlib, time, torch, ipex
def threads():
    names = [(task / "comm").read_text().strip() for task in pathlib.Path("/proc/self/task").iterdir()]
    return sorted(name for name in names if name.startswith("ipex "))
torch.set_num_threads(3)
assert threads() == [], threads()
model = ipex.jit_optimize(torch.nn.Linear(256, 512).eval(), torch.randn(64, 256))
with torch.inference_mode():
    model(torch.randn(512, 256))
expected = [f"ipex {i}" for i in range(1, min(3, os.sysconf("SC_NPROCESSORS_ONLN")))]
deadline = time.monotonic() + 10
while threads() != expected and time.monotonic() < deadline:  # a thread gives itself its name
    time.sleep(0.01)
assert threads() == expected, threads()
assert torch.get_num_threads() == 3
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no list of threads here")
def test_threads_start_with_the_first_parallel_call_and_end_with_the_process():
    subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], check=True, timeout=120)
