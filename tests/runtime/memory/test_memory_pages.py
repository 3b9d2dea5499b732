"""A large matrix is packed piece by piece, and its plain memory given back meanwhile where nobody else has it."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

import ipex
from support import assert_same

# Two pieces and a bit, and neither depth nor width is a multiple of a block.
SHAPES = [(1030, 8201), (8201, 1030), (5, 900_000)]


def optimized(model: nn.Module, inputs: int) -> torch.jit.ScriptModule:
    return ipex.jit_optimize(torch.jit.trace(model.eval(), torch.randn(2, inputs)))


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_pieces_are_the_whole(tmp_path, inputs, outputs):
    model = nn.Linear(inputs, outputs)
    ours = optimized(model, inputs)
    ours.save(tmp_path / "model.pt")
    loaded = ipex.load(tmp_path / "model.pt")
    with torch.no_grad():
        for rows in (1, 40):
            x = torch.randn(rows, inputs)
            assert_same(loaded(x), model(x))
            assert torch.equal(loaded(x), ours(x))
    loaded.save(tmp_path / "again.pt")
    x = torch.randn(2, inputs)
    with torch.no_grad():
        assert torch.equal(ipex.load(tmp_path / "again.pt")(x), ours(x))


def test_memory_of_others_stays():
    model = nn.Linear(1030, 8201)
    before = copy.deepcopy(model.weight)
    ours = optimized(model, 1030)
    assert torch.equal(model.weight, before)
    with torch.no_grad():
        assert_same(ours(torch.ones(2, 1030)), model(torch.ones(2, 1030)))


PEAK = """
import sys, torch, ipex
torch.set_grad_enabled(False)
def resident(key):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))
ipex.load(sys.argv[2])(torch.ones(1, 64))
before = resident("VmRSS")
ipex.load(sys.argv[1])(torch.ones(1, 4096))
print(resident("VmHWM") - before)
"""


def test_a_loaded_matrix_is_never_there_twice(tmp_path):
    optimized(nn.Linear(4096, 16384), 4096).save(tmp_path / "large.pt")
    optimized(nn.Linear(64, 64), 64).save(tmp_path / "tiny.pt")
    command = [sys.executable, "-W", "ignore", "-c", PEAK, tmp_path / "large.pt", tmp_path / "tiny.pt"]
    peak = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert peak < 1.2 * 256  # MiB of weight
