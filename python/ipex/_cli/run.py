"""Run a script that was written for IPEX, unmodified: run SCRIPT.py ARGUMENTS."""

from __future__ import annotations


def main(arguments: list[str]) -> int:
    """Run the script with its arguments."""
    from ..compat.run import main as run

    run(arguments)
    return 0
