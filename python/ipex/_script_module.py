"""ScriptModules on their way to C++ and back."""

from __future__ import annotations

import copy
import os
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ._adapter import AdaptedCall, Adapter
from ._load_extension import _C
from ._torch_internals import wrap_cpp_module


def cpp_module(module: torch.nn.Module, caller: str) -> Any:
    """Return the C++ module of a ScriptModule. Raises for anything else."""
    if isinstance(module, torch.jit.ScriptModule):
        return module._c
    if isinstance(module, torch.nn.Module):
        returned = ", which ipex.optimize returned" if "_ipex_report" in module.__dict__ else ""
        or_optimize = " or ipex.optimize(module)" if caller == "explain" else ""
        raise TypeError(
            f"ipex.{caller}: expected a ScriptModule, got the nn.Module {type(module).__name__}{returned}. "
            f"Call ipex.jit_optimize(module, example_inputs){or_optimize} first."
        )
    raise TypeError(f"ipex.{caller}: expected a ScriptModule, got {type(module).__name__}. {model_of(module)}")


def model_of(thing: object) -> str:
    """Return how to get a model from what is none."""
    if isinstance(thing, (str, os.PathLike)):
        return "Load the file first: ipex.load(path)."
    if isinstance(thing, torch.export.ExportedProgram):
        return "Call ipex.jit_optimize(program)."
    if isinstance(thing, Mapping):
        return "Make the model in Python, and load_state_dict what was saved."
    if callable(thing):
        return "Make an nn.Module whose forward calls it."
    return "Pass a model."


def is_optimized(module: torch.nn.Module) -> bool:
    """Whether jit_optimize has made it, or a part of it."""
    parts: Iterable[Any] = module.modules()  # ScriptModules
    return any(part._c.hasattr("ipex_report") for part in parts)


def refuse_optimized(module: torch.jit.ScriptModule, caller: str) -> None:
    """Raise for a module whose layers are packed already: no pass can be left out there, and nothing quantized."""
    if is_optimized(module):
        raise RuntimeError(
            f"ipex.{caller}: expected a model that was not optimised before, got one that was. Give it the original."
        )


def wrapped(cpp: Any, adapter: Adapter | None = None) -> torch.jit.ScriptModule:
    """Return a ScriptModule of a C++ module, with a short way from Python into its forward.

    With an adapter it is called as the model is of which it is a trace; so are copies, and not what is saved.
    """
    module = wrap_cpp_module(cpp)
    if cpp._has_method("forward"):
        call = _C.QuickCall(module)
        # nn.Module.__call__ asks this first
        module.__dict__["_compiled_call_impl"] = call if adapter is None else AdaptedCall(call, adapter)
    if adapter is not None:
        module.__dict__["__deepcopy__"] = lambda memo: wrapped(copy.deepcopy(cpp, memo), adapter)
    return module


def load(path: str | os.PathLike[str]) -> torch.jit.ScriptModule:
    """Load a saved model, like torch.jit.load, and say what is wrong with a file that can't be loaded.

    A file that Intel Extension for PyTorch 2.x saved is a plain model again: give it to `ipex.jit_optimize`.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"ipex.load: expected the path of a file, got {type(path).__name__}. Write it to a file first.")
    try:
        return wrapped(_C.load(os.fspath(path)))
    except RuntimeError as error:
        other = _other_format(path)
        if other is None:
            raise
        raise RuntimeError(f"ipex.load: expected a saved TorchScript model at {os.fspath(path)!r}, {other}") from error


def _other_format(path: str | os.PathLike[str]) -> str | None:
    """Return what else the file is, and what to do with it."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.partition("/")[2] for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile):
        return None
    if "archive_format" in names:
        return "got a program of torch.export. Call ipex.jit_optimize(torch.export.load(path))."
    if "data.pkl" in names and "constants.pkl" not in names:
        return (
            "got what torch.save wrote: a state_dict, or a module in pickled form. Make the model in Python, "
            "load_state_dict(torch.load(path)), and call ipex.jit_optimize(model, example_inputs)."
        )
    return None
