"""What a call of a warm model costs, in numbers that do not depend on the machine's mood.

A reorder, or an op or an allocation that comes back, shows here before any clock would.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = """
import sys, warnings
import torch, ipex
from torch.profiler import profile
from zoo import MODELS

torch.set_grad_enabled(False)
torch.set_num_threads(1)
warnings.simplefilter("ignore")
for name in sys.argv[1:]:
    model, inputs = MODELS[name].make()
    optimized = ipex.jit_optimize(torch.jit.trace(model, inputs[0], check_trace=False))
    for _ in range(4):
        optimized(*inputs[0])
    print("CALL", name, flush=True)
    optimized(*inputs[0])
    print("DONE", flush=True)
    with profile(profile_memory=True) as profiled:
        optimized(*inputs[0])
    events = profiled.profiler.kineto_results.events()
    allocations = sum(event.name() == "[memory]" and event.nbytes() > 0 for event in events)
    ops = sum(event.name().startswith(("aten::", "ipex::")) for event in events)
    print("COUNT", name, allocations, ops, flush=True)
"""

# Primitives of oneDNN, allocations, and ops of aten and ipex with those that they call themselves, with
# torch 2.13.
LIMITS = {
    "ResNet-18": (11, 13, 43),
    "MobileNet V2": (17, 19, 55),
    "DenseNet": (15, 38, 80),
    "U-Net, transposed convolutions": (13, 21, 46),
    "LSTM tagger": (1, 9, 70),
    "DLRM": (3, 12, 43),
}


@pytest.fixture(scope="module")
def printed() -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CALLS, *LIMITS],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "ONEDNN_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("name", LIMITS)
def test_a_warm_call(printed, name):
    (lines,) = re.findall(rf"^CALL {re.escape(name)}\n(.*?)^DONE", printed, re.DOTALL | re.MULTILINE)
    (counts,) = re.findall(rf"^COUNT {re.escape(name)} (\d+) (\d+)$", printed, re.MULTILINE)
    executed = [line.split(",") for line in lines.splitlines() if ",exec,cpu," in line]
    kinds = [line[line.index("cpu") + 1] for line in executed]
    print(name, len(kinds), *counts)
    assert kinds.count("reorder") == 0
    primitives, allocations, ops = LIMITS[name]
    assert len(kinds) <= primitives
    assert int(counts[0]) <= allocations
    assert int(counts[1]) <= ops
