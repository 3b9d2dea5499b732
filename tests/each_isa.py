"""`make test-isa`: tests, once per level of instructions that the CPU has, capped at it. Takes pytest's arguments too.

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


def main() -> int:
    """Return how many of the runs failed."""
    failed = []
    for level in isa.Level:
        if level == isa.Level.DEFAULT:
            continue  # oneDNN has little for it: tests that look for its kernels would find aten's
        if not cap_is_used(level):
            print(f"== {level}: skipped, the CPU lacks it", flush=True)
            continue
        print(f"== {level}", flush=True)
        # torch, which reads the same variable, knows only some of the words, and says so.
        unknown_to_torch = "ignore:ignoring invalid value for ATEN_CPU_CAPABILITY"
        command = [sys.executable, "-m", "pytest", "-q", "-W", unknown_to_torch, *SUITES, *sys.argv[1:]]
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": str(level)}
        if subprocess.run(command, env=environment, cwd=HERE.parent, check=False).returncode != 0:
            failed.append(str(level))
    print(f"== failed: {', '.join(failed)}" if failed else "== every level passed", flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
