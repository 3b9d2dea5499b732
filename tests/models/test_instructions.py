"""How many instructions a warm call of a tiny model takes, which is the same on every day and on every machine.

Valgrind's callgrind counts them, and does not know AVX-512: ipex, torch and oneDNN see a CPU with AVX2.
Beside a call of a model that computes nothing, in the same process, a number says something about ipex alone.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ipex

# What limits the instructions that ipex, torch and oneDNN use.
CAPS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")

COUNTS = """
import ctypes, mmap
import torch, ipex

# The machine code of valgrind.h that asks valgrind for something, and does nothing on a real CPU.
CODE = "4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3"
page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex(CODE))
function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64))
request = function(ctypes.addressof(ctypes.c_char.from_buffer(page)))
DUMP, ZERO, START, STOP = (0x43540000 + number for number in (0, 1, 4, 5))

def ask(what):
    request((ctypes.c_uint64 * 6)(what, 0, 0, 0, 0, 0))

def optimized(*widths):
    layers = []
    for width_in, width_out in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(width_in, width_out), torch.nn.ReLU()]
    model = torch.nn.Sequential(torch.nn.Identity(), *layers[:-1]).eval()
    return ipex.jit_optimize(torch.jit.trace(model, torch.randn(1, widths[0]), check_trace=False))

torch.set_grad_enabled(False)
torch.set_num_threads(1)
called_by_torch = optimized(64)
del called_by_torch.__dict__["_compiled_call_impl"]
for widths in [None, (64,), (64, 128, 256, 64), (8, 8, 8, 8, 8, 8)]:
    model, x = (optimized(*widths), torch.randn(1, widths[0])) if widths else (called_by_torch, torch.randn(1, 64))
    for _ in range(4):
        model(x)
    ask(START)
    model(x)
    ask(ZERO)
    for _ in range(10):
        model(x)
    ask(DUMP)
    ask(STOP)
"""


@pytest.fixture(scope="module")
def counts(tmp_path_factory) -> list[int]:
    """Of ten calls: nothing as torch calls it, nothing, the tiny MLP, five linears of 8 x 8."""
    if not shutil.which("valgrind"):
        pytest.skip("valgrind is not installed")
    if platform.machine() != "x86_64":
        pytest.skip("the request to valgrind is written for x86-64")
    if not ipex.isa.has_avx2():
        pytest.skip("without AVX2 there is more to count")
    folder: Path = tmp_path_factory.mktemp("callgrind")
    done = subprocess.run(
        [
            *("valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder / 'counted'}"),
            *(sys.executable, "-W", "ignore", "-c", COUNTS),
        ],
        env={
            **{name: value for name, value in os.environ.items() if name not in CAPS},
            **{"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode == -signal.SIGILL:
        pytest.skip("this valgrind does not know an instruction that torch uses")
    assert done.returncode == 0, done.stderr
    dumps = [(folder / f"counted.{i}").read_text() for i in range(1, 5)]
    found = [int(re.findall(r"^totals: (\d+)$", dump, re.MULTILINE)[-1]) for dump in dumps]
    print(found)
    return found


# The unit is a call as torch makes it of a model that computes nothing. The bounds leave room for other versions of
# Python and torch, whose calls take more or less.


def test_a_call_costs_less_than_one_of_torch(counts):
    """0.37 of it."""
    usual, nothing, _, _ = counts
    assert nothing < 0.5 * usual


def test_the_tiny_mlp_costs_little_more_than_such_a_call(counts):
    """1.32 times, of which 0.75 are arithmetic. With an op per linear it would be 1.67 times."""
    usual, _, tiny, _ = counts
    assert tiny < 1.5 * usual


def test_a_further_linear_costs_next_to_nothing(counts):
    """0.72 times for five of them; it would be 1.3 if each were an op of its own."""
    usual, _, _, five = counts
    assert five < 0.9 * usual
