"""C++ programs built by hand: a compiler, torch, and nothing of ipex but what is asked for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import torch

TORCH = Path(torch.__file__).parent
INCLUDES = [f"-I{TORCH}/include", f"-I{TORCH}/include/torch/csrc/api/include"]
LIBRARIES = [f"-L{TORCH}/lib", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{TORCH}/lib"]


def compile_by_hand(target: Path, *arguments: Path | str) -> Path:
    """Call the compiler, and return what it made."""
    command = ["c++", "-std=c++20", "-o", target, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target
