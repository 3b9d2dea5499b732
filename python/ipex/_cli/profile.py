"""Show where the time of an optimised model goes, op by op."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from .. import profile
from .._explain.text import show
from .models import add_inputs, add_model, add_options, optimized, step, the_inputs, the_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, what="a TorchScript file, optimised or not")
    add_inputs(parser)
    add_options(parser)
    parser.add_argument("--calls", type=int, default=10, help="calls to measure (10)")
    parser.add_argument("--threads", type=int, help="threads to compute with")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with the graph, coloured by time")
    parser.add_argument("--roofline", type=Path, metavar="FILE", help="write a roofline plot, SVG")
    parser.add_argument("--json", action="store_true", help="everything, as JSON")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    if options.threads:
        torch.set_num_threads(options.threads)
    model, own = the_model(options.model)
    inputs = the_inputs(options, own)
    result = optimized(model, options)
    with step("measuring"):
        times = profile(result, inputs, calls=options.calls)
    if options.html:
        times.to_html(options.html, title=options.model)
    if options.roofline:
        times.to_svg(options.roofline)
    if options.json:
        print(times.to_json())
    else:
        show(times)
    return 0
