"""Run a script that was written for IPEX, unmodified: run SCRIPT.py ARGUMENTS."""

from __future__ import annotations

from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run the script with its arguments."""
    from . import MISUSED, failed

    if arguments and not arguments[0].startswith("-") and not Path(arguments[0]).exists():
        return failed(f"ipex run: expected a script, got {arguments[0]!r}, which is not there.", MISUSED)
    from ..compat.run import main as run  # changes the process

    run(arguments)
    return 0
