"""Time a model in ipex and in its peers, each result checked against eager."""

from __future__ import annotations

import argparse


def parser() -> argparse.ArgumentParser:
    """Return the parser of its options."""
    from ..bench.command import parser as made

    return made()


def main(arguments: list[str]) -> int:
    """Run the benchmark, which has options of its own."""
    from ..bench.command import main as bench

    bench(arguments)
    return 0
