"""Compare an optimised model with the original on some inputs. Exits with 1 where they differ."""

from __future__ import annotations

import argparse

from .. import verify
from .models import add_inputs, add_model, add_options, optimized, step, the_inputs, the_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, "original", "the original: a TorchScript file")
    parser.add_argument("optimized", nargs="?", help="the optimised file; without, the original is optimised here")
    add_inputs(parser)
    add_options(parser)
    parser.add_argument("--tolerance", type=float, help="relative to the largest element, instead of the precision's")
    parser.add_argument("--json", action="store_true", help="everything, as JSON")


def run(options: argparse.Namespace) -> int:
    """Compare, and print how."""
    original, own = the_model(options.original)
    inputs = the_inputs(options, own)
    other = the_model(options.optimized)[0] if options.optimized else optimized(original, options)
    with step("comparing"):
        found = verify(original, other, inputs, tolerance=options.tolerance)
    print(found.to_json() if options.json else found)
    return 0 if found.ok else 1
