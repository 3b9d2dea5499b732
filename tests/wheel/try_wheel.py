"""Installs a wheel of ipex where there is no compiler, and runs a model: try_wheel.py dist/ipex-*.whl [torch==2.13.0]

A new environment, an empty home, and a PATH that holds Python alone. Says how long each step takes. `make try-wheel`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# What a wheel must work without.
BUILD_TOOLS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "ld", "as", "make", "cmake", "ninja")
MODEL = """
import torch
import ipex

model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU()).eval()
image = torch.randn(1, 3, 32, 32)
optimized = ipex.jit_optimize(model, image)
assert ipex.verify(model, optimized, image)
optimized.save("model.pt")
assert torch.equal(ipex.load("model.pt")(image), optimized(image))
kinds = [node.kind for node in ipex.explain(optimized).final]
assert "ipex::convolution_run" in kinds, kinds

from importlib.metadata import files

legal = {path.name for path in files("ipex") if "licenses" in path.parts}
assert {"LICENSE", "NOTICE"} <= legal, legal
"""


def main(wheel: str, *requirements: str) -> None:
    """Install the wheel and what it requires, and run a model with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = folder / "bin"
        tools.mkdir()
        (tools / "python3").symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
        # How this machine reaches its package index, and nothing else.
        kept = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k.lower().endswith("_proxy")}
        environment = {**kept, "PATH": str(tools), "HOME": name}
        found = [tool for tool in BUILD_TOOLS if shutil.which(tool, path=str(tools))]
        assert not found, f"expected a PATH without build tools, got {found}"

        def step(what: str, *command: str) -> None:
            start = time.monotonic()
            subprocess.run(command, env=environment, cwd=folder, check=True)
            print(f"try_wheel: {what}: {time.monotonic() - start:.0f} s", flush=True)

        python = str(folder / "venv" / "bin" / "python")
        step("a new environment", str(tools / "python3"), "-m", "venv", str(folder / "venv"))
        step("pip install", python, "-m", "pip", "install", "--quiet", *requirements, str(Path(wheel).resolve()))
        step("a model", python, "-W", "ignore::FutureWarning", "-c", MODEL)
        step("the command", str(folder / "venv" / "bin" / "ipex"), "explain", "model.pt")
    print("try_wheel: OK")


if __name__ == "__main__":
    main(*sys.argv[1:])
