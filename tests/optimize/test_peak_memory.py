"""`inplace=True` holds no weight twice: not while it packs, and not afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

MIB_OF_WEIGHTS = 256

# Prints by how many MiB memory peaks above what a model takes while it is optimised and called, and what it has then.
SCRIPT = """
import re, sys, torch, ipex

def resident(field):
    return int(re.search(field + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

torch.set_num_threads(1)
with torch.no_grad():
    ipex.optimize(torch.nn.Linear(64, 64).eval())(torch.ones(1, 64))
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(64)]).eval()
    before = resident("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
    optimized = ipex.optimize(model, inplace=sys.argv[1] == "inplace")
    optimized(torch.ones(1, 1024))
    print(resident("VmHWM") - before, resident("VmRSS") - before)
"""


def measured(how: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=False)
    if "clear_refs" in done.stderr:
        pytest.skip("this system does not reset the peak")
    peak, left = map(float, done.stdout.split())
    return peak, left


def test_inplace():
    peak, left = measured("inplace")
    assert peak < 0.1 * MIB_OF_WEIGHTS
    assert left < 0.1 * MIB_OF_WEIGHTS


def test_the_measure_sees_a_copy():
    assert measured("copy")[1] > 0.9 * MIB_OF_WEIGHTS
