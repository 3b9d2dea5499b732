"""Which changes of layout stand in the graphs of real models, after all passes: from what to what, and how often.

    PYTHONPATH=build/zoo-packages python benchmarks/layout_conversions.py --sample 100 --seed 5

Models are those of `benchmarks/zoo`, drawn by the seed; nothing is run but a trace. What converts an input of the model
is not counted, as eager's images come contiguous. Nor is what hangs on a tensor's strides at run time.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import ipex

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.zoo import catalogue

CONVERSIONS = ("ipex::to_channels_last", "ipex::restore_layout")


def conversions(graph: Any) -> Iterator[str]:
    """Name each as "what gives the value -> the conversion -> what reads it"."""
    inputs = {value.debugName() for value in graph.inputs()}
    for kind in CONVERSIONS:
        for node in graph.findAllNodes(kind, recurse=True):
            given, layout = node.inputsAt(0), node.inputsAt(1)
            hangs_on_strides = kind == "ipex::restore_layout" and layout.toIValue() is not False
            if given.debugName() in inputs or hangs_on_strides:
                continue
            readers = sorted({use.user.kind() for use in node.output().uses()})
            yield f"{given.node().kind()} -> {kind} -> {', '.join(readers)}"


def main() -> None:
    """Print a line for each model that has some, and the sum of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=100, help="how many models (100)")
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    options = parser.parse_args()
    libraries = [library for library in catalogue.LIBRARIES if not catalogue.missing(library)]
    names = (name for name in catalogue.in_order(libraries, options.seed) if not catalogue.why_left_out(name))
    found: dict[str, Counter[str]] = {}
    for name in names:
        if len(found) == options.sample:
            break
        try:
            model, inputs = catalogue.make(catalogue.Recipe(name, options.seed))
            with torch.no_grad():
                graph = ipex.jit_optimize(torch.jit.trace(model, inputs, check_trace=False)).inlined_graph
        except Exception as error:
            print(f"left out: {name}: {type(error).__name__}", file=sys.stderr)
            continue
        found[name] = Counter(conversions(graph))
        for text, count in found[name].items():
            print(f"{name}: {count} x {text}", flush=True)
    none = sum(not counts for counts in found.values())
    print(f"{none} of {len(found)} models convert nothing but their inputs")
    for text, count in sum(found.values(), Counter[str]()).most_common():
        models = sum(text in counts for counts in found.values())
        print(f"{count} in {models} models: {text}")


if __name__ == "__main__":
    main()
