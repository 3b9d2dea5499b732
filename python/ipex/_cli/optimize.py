"""Optimise a file of TorchScript or torch.export and write the result: optimize in.pt -o out.pt."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .. import explain, verify
from .._script_module import is_optimized
from .models import add_inputs, add_model, add_options, optimized, step, the_inputs, the_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    add_inputs(parser)
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")


def run(options: argparse.Namespace) -> int:
    """Optimise, verify where there are inputs, write."""
    model, own = the_model(options.model)
    if is_optimized(model):
        raise ValueError(
            f"ipex optimize: expected a model that is not optimised, got {options.model}, which is. "
            "Give it the original."
        )
    result = optimized(model, options)
    inputs = the_inputs(options, own, is_needed=False)
    verification = None
    if inputs is not None:
        with step("comparing with the original"):
            verification = verify(model, result, inputs)
    report = explain(result)
    if options.json:
        compared = verification.as_dict() if verification is not None else None
        found = {"output": str(options.output), "verdict": report.verdict, "verification": compared}
        print(json.dumps(found, indent=1))
    else:
        print("\n".join([*report.verdict, *([str(verification)] if verification is not None else [])]))
    if verification is not None and not verification.ok:
        print(f"ipex optimize: the models differ: {options.output} is not written", file=sys.stderr)
        return 1
    result.save(str(options.output))
    if not options.json:
        print(f"written: {options.output}")
    return 0
