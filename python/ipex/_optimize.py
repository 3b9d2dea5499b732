from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ._load_extension import _C
from ._math_mode import FP32MathMode, number_of

# Their numbers in C++ and in TorchScript.
_DTYPES = {torch.float16: 5, torch.bfloat16: 15}


@dataclass(frozen=True)
class Decision:
    """What one pass did with one node of a model."""

    pass_name: str
    node: str
    applied: bool
    reason: str
    method: str = "forward"

    def __str__(self) -> str:
        return f"{'applied ' if self.applied else 'declined'}  {self.pass_name}: {self.node}: {self.reason}"


@dataclass(frozen=True)
class Report:
    """Every decision that was taken about a model. Print it, or go through it."""

    decisions: tuple[Decision, ...]

    @property
    def applied(self) -> tuple[Decision, ...]:
        """The decisions that changed the model."""
        return tuple(d for d in self.decisions if d.applied)

    @property
    def declined(self) -> tuple[Decision, ...]:
        """The decisions to leave a node as it was, with the reason."""
        return tuple(d for d in self.decisions if not d.applied)

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    def __str__(self) -> str:
        return "\n".join(map(str, self.decisions))


def jit_optimize(
    module: torch.jit.ScriptModule,
    *,
    disable: Iterable[str] = (),
    dtype: torch.dtype | None = None,
    fp32_math_mode: FP32MathMode | None = None,
) -> torch.jit.ScriptModule:
    """Return a new module that computes what `module` does, faster.

    `module` may be traced, scripted, frozen or loaded from a file, and must be in eval mode. It is not changed. The
    result is an ordinary ScriptModule: save it, load it, copy it, run it from many threads or from C++.
    `disable` names passes to leave out; `python -m ipex --passes` lists them. `dtype`, torch.bfloat16 or torch.float16,
    lets the convolutions and linears of a float32 model compute in it; inputs and results keep their dtype. A model
    that has 16-bit weights, or was traced under autocast, needs no `dtype`. `fp32_math_mode`, FP32 or BF32, is the
    model's own from then on, and saved with it; without, the model follows `set_fp32_math_mode`.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> x = torch.randn(2, 8)
    >>> optimized = ipex.jit_optimize(torch.jit.trace(model, x))
    >>> torch.allclose(optimized(x), model(x), atol=1e-6)
    True
    """
    mode = None if fp32_math_mode is None else number_of(fp32_math_mode, "jit_optimize")
    number = None if dtype is None else _DTYPES[_checked(dtype)]
    return _wrap(_C.jit_optimize(_c(module, "jit_optimize"), _pass_names(disable), mode, number))


def optimize(
    model: torch.nn.Module,
    example_inputs: torch.Tensor | tuple[Any, ...] | Mapping[str, Any],
    *,
    disable: Iterable[str] = (),
    dtype: torch.dtype | None = None,
    fp32_math_mode: FP32MathMode | None = None,
) -> torch.jit.ScriptModule:
    """Trace `model` with `example_inputs` and optimise the trace. `model` is not changed.

    A mapping is passed as keyword arguments. The options are those of `jit_optimize`.
    """
    if isinstance(model, torch.jit.ScriptModule):
        return jit_optimize(model, disable=disable, dtype=dtype, fp32_math_mode=fp32_math_mode)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"ipex.optimize: expected a torch.nn.Module, got {type(model).__name__}.")
    if model.training:
        raise ValueError("ipex.optimize: expected a module in eval mode, got training=True. Call model.eval() first.")
    with torch.no_grad():
        if isinstance(example_inputs, Mapping):
            traced = torch.jit.trace(model, example_kwarg_inputs=dict(example_inputs))
        else:
            traced = torch.jit.trace(model, example_inputs)
    return jit_optimize(traced, disable=disable, dtype=dtype, fp32_math_mode=fp32_math_mode)


def load(path: str | os.PathLike[str]) -> torch.jit.ScriptModule:
    """Load a saved model, like torch.jit.load, and say what is wrong with a file that can't be loaded."""
    return _wrap(_C.load(os.fspath(path)))


def explain(module: torch.jit.ScriptModule) -> Report:
    """Return what `jit_optimize` did with each node of `module`, and why. The report is saved with the model."""
    return Report(tuple(Decision(*row) for row in _C.explain(_c(module, "explain"))))


def _checked(dtype: torch.dtype) -> torch.dtype:
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"ipex.jit_optimize: expected a torch.dtype in dtype, got {dtype!r}. Take torch.bfloat16.")
    if dtype not in _DTYPES:
        raise ValueError(
            f"ipex.jit_optimize: expected torch.bfloat16 or torch.float16 in dtype, got {dtype}. "
            "Without one, a model keeps its own."
        )
    return dtype


def _c(module: Any, caller: str) -> Any:
    if isinstance(module, torch.jit.ScriptModule):
        return module._c
    if isinstance(module, torch.nn.Module):
        raise TypeError(
            f"ipex.{caller}: expected a ScriptModule, got the nn.Module {type(module).__name__}. "
            "Call torch.jit.trace(model, example_inputs) first, or ipex.optimize(model, example_inputs)."
        )
    raise TypeError(f"ipex.{caller}: expected a ScriptModule, got {type(module).__name__}.")


def _wrap(module: Any) -> torch.jit.ScriptModule:
    wrapped: torch.jit.ScriptModule = torch.jit._recursive.wrap_cpp_module(module)
    if module._has_method("forward"):
        wrapped.__dict__["_compiled_call_impl"] = _C.QuickCall(wrapped)  # nn.Module.__call__ asks this first
    return wrapped


def _pass_names(disable: Iterable[str]) -> list[str]:
    if isinstance(disable, str):
        raise TypeError(f"ipex.jit_optimize: expected a list of pass names in disable, got the string {disable!r}.")
    return list(disable)
