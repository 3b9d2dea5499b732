"""ScriptModules on their way to C++ and back."""

from __future__ import annotations

import copy
import os
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
        raise TypeError(
            f"ipex.{caller}: expected a ScriptModule, got the nn.Module {type(module).__name__}. "
            "Call ipex.jit_optimize(module, example_inputs) or ipex.optimize(module) first."
        )
    raise TypeError(f"ipex.{caller}: expected a ScriptModule, got {type(module).__name__}.")


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
    """Load a saved model, like torch.jit.load, and say what is wrong with a file that can't be loaded."""
    return wrapped(_C.load(os.fspath(path)))
