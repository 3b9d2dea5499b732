"""Builds many_threads.cpp and runs it: `python tests/threads/many_threads.py [CALLS]`, `make threads`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

import ipex
from build_cpp import build

HERE = Path(__file__).parent
CALLERS, CALLS = 64, 10_000


class Small(nn.Module):
    """Convolutions of several kinds, a residual, linears: small, so that what a call shares with others weighs most."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.head = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        """Return a row for each image."""
        x = self.stem(x)
        x = torch.relu(self.pointwise(self.depthwise(x)) + x)
        return torch.softmax(self.head(x.mean((2, 3))), -1)


def build_program(folder: Path, ipex_prefix: Path | str = ipex.cmake_prefix_path) -> Path:
    """Return the program."""
    return build(HERE, folder, ipex_prefix=ipex_prefix) / "many_threads"


def run(
    program: list[Path | str], folder: Path, callers: int, calls: int, threads: int = 1, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Let callers call a model that is saved in the folder, each in so many threads."""
    ipex.jit_optimize(Small().eval(), torch.randn(2, 4, 5, 5)).save(folder / "model.pt")
    libraries = str(Path(torch.__file__).parent / "lib")
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "LD_LIBRARY_PATH": libraries, **environment}
    command = [*program, folder / "model.pt", str(callers), str(calls)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def main() -> int:
    """Run it in full, or with as many calls as asked for."""
    warnings.filterwarnings("ignore", message=".*torch.jit.*")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = run([build_program(folder / "build")], folder, CALLERS, int(sys.argv[1]) if sys.argv[1:] else CALLS)
    print(done.stdout + done.stderr, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
