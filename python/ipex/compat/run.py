"""`python -m ipex run script.py ...`: a script for IPEX, unmodified."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Run the script as python would, with its arguments."""
    usage = "usage: ipex run script.py [arguments of the script]"
    if arguments[:1] in (["-h"], ["--help"]):
        return print(usage)
    if not arguments:
        raise SystemExit(usage)
    import ipex.compat  # noqa: F401

    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")
