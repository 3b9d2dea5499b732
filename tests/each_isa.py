"""Runs something once per level of instructions that the CPU has, capped at it.

    python tests/each_isa.py -k linear                               # `make test-isa`: tests, with pytest's arguments
    python tests/each_isa.py tests/fuzz_ops/run.py --cases 20000     # `make fuzz-ops`: another program, with its own

Each run is a process of its own, because a cap holds for a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ipex import _C, isa

HERE = Path(__file__).parent
SUITES = [str(HERE / name) for name in ("runtime", "passes", "defect_classes", "optim")]


def cap_is_used(level: isa.Level) -> bool:
    """Whether the CPU has this very level: capped at another, it uses a lower one, or refuses the cap."""
    try:
        return _C.isa_choose(_C.isa_features(), str(level), "", None)[0] == str(level)
    except RuntimeError:
        return False


def command_of(arguments: list[str]) -> list[str]:
    """Return what is to be run: a program, or pytest."""
    if arguments and arguments[0].endswith("run.py"):
        return [sys.executable, "-W", "ignore", *arguments]
    # torch, which reads the same variable, knows only some of the words, and says so.
    unknown_to_torch = "ignore:ignoring invalid value for ATEN_CPU_CAPABILITY"
    return [sys.executable, "-m", "pytest", "-q", "-W", unknown_to_torch, *SUITES, *arguments]


def main() -> int:
    """Return how many of the runs failed."""
    failed = []
    command = command_of(sys.argv[1:])
    for level in isa.Level:
        if level == isa.Level.DEFAULT:
            continue  # oneDNN has little for it: tests that look for its kernels would find aten's
        if not cap_is_used(level):
            print(f"== {level}: skipped, the CPU lacks it", flush=True)
            continue
        print(f"== {level}", flush=True)
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": str(level)}
        if subprocess.run(command, env=environment, cwd=HERE.parent, check=False).returncode != 0:
            failed.append(str(level))
    print(f"== failed: {', '.join(failed)}" if failed else "== every level passed", flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
