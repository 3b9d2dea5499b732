"""Show versions, the CPU, its instructions, threads and settings: what a bug report needs."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys

import torch

from .. import _C, __version__, isa
from ..bench.machine import describe

SETTINGS = (
    "ATEN_CPU_CAPABILITY",
    "IPEX_FP32_MATH_MODE",
    "IPEX_SHUFFLE",
    "IPEX_VERBOSE",
    "IPEX_VERIFY",
    "KMP_AFFINITY",
    "LD_PRELOAD",
    "MALLOC_CONF",
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "ONEDNN_MAX_CPU_ISA",
    "ONEDNN_VERBOSE",
    "PYTORCH_JIT",
)


def isa_lines() -> list[str]:
    """Return which instructions are there, and which would be used."""
    own = [min(isa.current(), isa.highest_binary()), *isa.optional_families()]
    return [
        f"highest of the CPU  {isa.highest_cpu()}",
        f"highest in ipex     {isa.highest_binary()}",
        f"used by ipex        {', '.join(map(str, own))}",
        f"used by oneDNN      {isa.onednn()}",
    ]


def facts() -> dict[str, str]:
    """Return everything by name."""
    try:
        instructions = dict((line[:20].strip(), line[20:]) for line in isa_lines())
        found = describe()
    except RuntimeError as error:  # a cap that can't be: the report has to say so
        instructions, found = {"instructions": str(error)}, {}
    return {
        "ipex": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "C library": " ".join(platform.libc_ver()).strip(),
        **{name: value for name, value in found.items() if name not in ("ipex", "torch", "python", "instructions")},
        **instructions,
        "threads of torch": str(torch.get_num_threads()),
        "OpenMP": next((line.strip(" -") for line in torch.__config__.show().splitlines() if "OpenMP" in line), "none"),
        "float32 math mode": ("FP32", "BF32")[_C.get_fp32_math_mode() == _bf32()],
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        **{name: os.environ[name] for name in SETTINGS if name in os.environ},
        "interpreter": sys.executable,
    }


def _bf32() -> int:
    from .. import FP32MathMode

    return int(FP32MathMode.BF32.value)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the facts."""
    found = facts()
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        width = max(map(len, found))
        print("\n".join(f"{name:{width}}  {value}" for name, value in found.items()))
    return 0
