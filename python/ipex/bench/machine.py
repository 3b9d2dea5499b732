"""What the figures depend on: the CPU, the versions, what the machine reaches, how much memory a process took."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path

import torch
from torch.utils.mkldnn import to_mkldnn

from .._version import __version__
from ..isa import current

PACKAGES = ("torch", "onnxruntime", "openvino", "onnx", "onnxscript", "numpy")


def describe() -> dict[str, str]:
    """Return the CPU and the versions; what is not installed is left out."""
    found = {
        "cpu": _cpu_name(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "instructions": str(current()),
        "python": platform.python_version(),
        "ipex": __version__,
    }
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def load_average() -> float:
    """How many processes wanted to run in the last minute: what else the machine does."""
    return os.getloadavg()[0]


def wait_until_idle(limit_seconds: float = 1.0) -> None:
    """Wait until no thread of this process runs, or until the limit.

    The threads of some libraries spin after a call, ONNX Runtime's for 0.07 s, on CPUs that the next backend needs.
    """
    pause = 0.01
    end = time.perf_counter() + limit_seconds
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(pause)
        if time.process_time() - before < pause / 10:
            return


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def peak_memory() -> float | None:
    """Return the most memory, in bytes, that this process had so far; None if the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return 1024.0 * int(kilobytes[0]) if kilobytes else None


def peak_operations_per_second(size: int = 1536, seconds: float = 1.0) -> float:
    """Return the best of torch's float32 matrix product and of oneDNN's, over some seconds."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    linear = to_mkldnn(torch.nn.Linear(size, size))
    x = a.to_mkldnn()
    shortest = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for product in (lambda: torch.mm(a, b), lambda: linear(x)):
            start = time.perf_counter()
            product()
            shortest = min(shortest, time.perf_counter() - start)
    return 2.0 * size**3 / shortest
