"""Models and inputs, as the command line names them."""

from __future__ import annotations

import argparse
import inspect
import pickle
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from .. import _C, FP32MathMode, jit_optimize, load
from .._adapter import named
from .._inputs import arguments
from .._jit_optimize import script_module
from .._script_module import is_optimized
from ..bench.models import MODELS
from ..bench.subject import make_input


def add_model(parser: argparse.ArgumentParser, name: str = "model", what: str = "") -> None:
    """Add an argument that names a model."""
    what = what or "a file of TorchScript or, as .pt2, of torch.export"
    parser.add_argument(name, help=f"{what}, or one of {', '.join(MODELS)} (random weights)")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the options that give the inputs of a model."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="1x3x224x224",
        help="noise of this shape, once for each input; 1x128:int64:30522 for integers below 30522",
    )
    parser.add_argument(
        "--inputs",
        metavar="FILE",
        help="what torch.save wrote, instead: a tensor, a tuple or list of arguments, or a dict of keyword arguments",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `jit_optimize`."""
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), help="compute in this dtype")
    parser.add_argument("--fp32-math-mode", type=str.upper, choices=("FP32", "BF32"), help="the model's own math mode")
    parser.add_argument(
        "--disable", type=lambda text: text.split(","), default=[], help="passes to leave out, with commas"
    )
    phases = list(dict.fromkeys(row["phase"] for row in _C.pass_table()))
    parser.add_argument("--stop-after", choices=phases, metavar="PHASE", help=f"the last phase: {', '.join(phases)}")


def the_model(name: str) -> tuple[torch.jit.ScriptModule, Any]:
    """Return a model in eval mode, and its own inputs if it has any."""
    if name in MODELS:
        model, inputs = MODELS[name].make(MODELS[name].batches[0])
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.jit.trace(model, inputs, check_trace=False), inputs
    if not Path(name).is_file():
        raise ValueError(f"ipex: expected a file or one of {', '.join(MODELS)}, got {name!r}, which is not there.")
    if name.endswith(".pt2"):
        try:
            program = torch.export.load(name)
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0]
            raise ValueError(
                f"ipex: expected a program that torch.export.save wrote in {name}, got: {reason}"
            ) from None
        args, kwargs = program.example_inputs or ((), {})
        script = script_module(program, None, "optimize")
        return script, named(inspect.signature(program.module().forward), args, kwargs) or None
    return load(name).eval(), None


def the_inputs(options: argparse.Namespace, own: Any, is_needed: bool = True) -> Any:
    """Return the inputs that the options give, or else the model's own."""
    if options.inputs:
        try:
            given = torch.load(options.inputs, weights_only=True)
        except pickle.UnpicklingError:
            raise ValueError(
                f"ipex: expected tensors, and tuples, lists and dicts of them in {options.inputs}, got something else. "
                "Save such: torch.save(dict(encoding), FILE)."
            ) from None
        arguments(given, "--inputs")
        return given
    if options.input:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return tuple(map(make_input, options.input))
    if own is None and is_needed:
        raise ValueError(
            "ipex: expected inputs for a model out of a file, got none. Pass --input 1x3x224x224 or --inputs FILE."
        )
    return own


def optimized(model: torch.jit.ScriptModule, options: argparse.Namespace) -> torch.jit.ScriptModule:
    """Return the model optimised as the options say; one that is so already as it is."""
    if is_optimized(model):
        if options.dtype or options.fp32_math_mode or options.disable or options.stop_after:
            raise ValueError("ipex: expected a plain model with these options, got one that is optimised already.")
        return model
    known = set(_C.pass_names())
    for name in options.disable:
        if name not in known and not name.startswith("ipex::"):  # of ops, jit_optimize says what it knows
            raise ValueError(f"ipex: expected names of passes in --disable, got {name!r}. `ipex --passes` lists them.")
    with step("optimising"):
        return jit_optimize(
            model,
            dtype=getattr(torch, options.dtype) if options.dtype else None,
            fp32_math_mode=FP32MathMode[options.fp32_math_mode] if options.fp32_math_mode else None,
            disable=options.disable,
            stop_after=options.stop_after,
        )


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say on a terminal what is being done, for as long as it takes."""
    is_seen = sys.stderr.isatty()
    if is_seen:
        print(f"{what} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if is_seen:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
