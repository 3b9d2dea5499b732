"""Configures and builds a CMake project against the installed ipex and torch. Used by the demo and the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import torch

import ipex


def build(
    source: Path,
    build_dir: Path,
    torch_prefix: Path | str = torch.utils.cmake_prefix_path,
    ipex_prefix: Path | str = ipex.cmake_prefix_path,
) -> Path:
    """Build the project in `source` and return the folder with its programs."""
    prefixes = f"{ipex_prefix};{torch_prefix}"
    settings = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefixes}"]
    for arguments in (["-S", str(source), "-B", str(build_dir), *settings], ["--build", str(build_dir)]):
        done = subprocess.run(["cmake", *arguments], text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"cmake {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return build_dir


def save_tensor(tensor: torch.Tensor, path: Path) -> None:
    """Save a tensor so that C++ can read it with torch::jit::load."""

    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("tensor", tensor)

    torch.jit.script(Holder()).save(path)


def load_tensor(path: Path) -> torch.Tensor:
    """Load a tensor that C++ saved as the attribute `tensor` of a module."""
    return torch.jit.load(path).tensor  # type: ignore[no-any-return]
