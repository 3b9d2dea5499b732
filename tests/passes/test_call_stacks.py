"""An op that raises tells where it was called from, and the process lives on."""

import os
import subprocess
import sys

import pytest

# Freed memory is filled, so that reading it shows: a frozen trace alone dies here in about every third process.
PROGRAM = """
import torch
import ipex

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.next = torch.nn.GRU(8, 8, bias=False), torch.nn.Conv1d(5, 8, 2)

    def forward(self, x):
        torch.ops.aten._foreach_minimum_([x, x.clone()], -1.5)
        return self.next(self.layer(x)[0])

with torch.no_grad():
    frozen = torch.jit.freeze(torch.jit.trace(Model().eval(), torch.randn(3, 5, 8), check_trace=False))
    optimized = ipex.jit_optimize(frozen)
    optimized(torch.randn(3, 5, 8))
    for _ in range(20):
        try:
            optimized(torch.randn(0, 5, 8))
        except RuntimeError as error:
            print(error)
"""


@pytest.mark.parametrize("run", range(4))
def test_functions_that_were_inlined_are_not_asked(run):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={**os.environ, "MALLOC_PERTURB_": "165"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Expected sequence length to be larger than 0") == 20
    assert "forward" in done.stdout
