"""Write a TorchScript file with its weights packed: aot in.pt -o out.ipex --isa avx512. Without -o, describe one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .. import _C, aot_describe, aot_save, isa
from .models import add_inputs, add_model, add_options, optimized, step, the_inputs, the_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser)
    parser.add_argument("-o", "--output", type=Path, help="the file to write")
    parser.add_argument(
        "--isa",
        choices=[str(level) for level in isa.Level if level],
        help="the instructions to pack for, those that are used here if left out; at most those of this CPU",
    )
    add_inputs(parser)
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print what the file holds as JSON")


def run(options: argparse.Namespace) -> int:
    """Optimise the model unless it is so already, and write it; or describe a file."""
    if options.output is None:
        return _describe(Path(options.model), options)
    if options.isa:
        _C.isa_limit(options.isa)  # before anything is packed
    model, own = the_model(options.model)
    result = optimized(model, options)
    inputs: Any = the_inputs(options, own, is_needed=False)
    with step("packing"):
        aot_save(result, options.output, example_inputs=inputs)
    return _describe(options.output, options)


def _describe(path: Path, options: argparse.Namespace) -> int:
    if not path.is_file():
        raise ValueError(f"ipex aot: expected a file, got {str(path)!r}.")
    facts = aot_describe(path)
    if options.json:
        print(json.dumps({"file": str(path), **facts}, indent=1))
        return 0
    mib = 1 << 20
    print(f"{path}: for {facts['isa']} (oneDNN: {facts['onednn_isa']}), ipex {facts['ipex']}, torch {facts['torch']}")
    print(f"  {facts['packed_weights']} packed weights, {facts['packed_bytes'] / mib:.1f} MiB")
    print(f"  {facts['plain_weights']} plain weights, {facts['plain_bytes'] / mib:.1f} MiB")
    if facts["packed_again"]:
        print(f"  packed again here: {facts['packed_again']}")
    return 0
