"""Show what became of each op of a model, and why."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import explain
from .._explain.text import show
from .models import add_model, add_options, optimized, the_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_model(parser, what="a TorchScript file, optimised or not")
    add_options(parser)
    parser.add_argument("--all", action="store_true", help="a line per op instead of groups")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with the graph before and after")
    parser.add_argument("--json", action="store_true", help="everything, as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the report."""
    report = explain(optimized(the_model(options.model)[0], options))
    if options.html:
        report.to_html(options.html, title=options.model)
    if options.json:
        print(report.to_json())
    elif options.all:
        print(report.details())
    else:
        show(report)
    return 0
