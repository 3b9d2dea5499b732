"""Times a ResNet-50 that torch.ao.quantization quantised, as torch computes its reference model and as ipex does:

    OMP_NUM_THREADS=1 python benchmarks/given_int8.py

Random weights and inputs; the calls are taken in turn. Prints Markdown, with the noise of results relative to those of
the reference model.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_to_reference_fx, prepare_fx

import ipex
from int8_models import model_of, noise
from ipex.quantization import Recipe, convert, prepare


def main() -> None:
    """Print a table."""
    from in_turn import times_in_turn

    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model, inputs = model_of("ResNet-50")
    x = inputs(1)
    observed = prepare_fx(model, get_default_qconfig_mapping("x86"), (x,))
    with torch.no_grad():
        for _ in range(2):
            observed(inputs(1))
        observed(x)
        given = convert_to_reference_fx(observed)
        prepared = prepare(model, x, Recipe("min_max"))
        prepared(x)
        calls: dict[str, Callable[[], Any]] = {
            "torch, reference model in eager": lambda: given(x),
            "ipex, of the reference model": (lambda m: lambda: m(x))(ipex.jit_optimize(given, x)),
            "ipex, prepare and convert": (lambda m: lambda: m(x))(convert(prepared)),
            "ipex, float32": (lambda m: lambda: m(x))(ipex.jit_optimize(model, x)),
        }
        reference = given(x)
        print("| | fastest, ms | median, ms | noise |\n|---|---|---|---|")
        times = times_in_turn(20, list(calls.values()), time.thread_time)
        for (name, call), own in zip(calls.items(), times):
            ms = f"{min(own) * 1e3:.1f} | {statistics.median(own) * 1e3:.1f}"
            print(f"| {name} | {ms} | {noise(call(), reference):.4f} |", flush=True)


if __name__ == "__main__":
    main()
