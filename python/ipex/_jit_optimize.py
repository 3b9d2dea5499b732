from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ._adapter import adapter_of
from ._exported import is_exported, script_of
from ._inputs import arguments
from ._load_extension import _C
from ._math_mode import FP32MathMode
from ._options import Options
from ._script_module import cpp_module, model_of, refuse_optimized, wrapped
from ._tracing import traced
from ._training_mode import refuse_training, warn_of_training


def jit_optimize(
    module: torch.nn.Module | torch.export.ExportedProgram,
    example_inputs: Any = None,
    *,
    disable: Iterable[str] = (),
    dtype: torch.dtype | None = None,
    fp32_math_mode: FP32MathMode | None = None,
    stop_after: str | None = None,
) -> torch.jit.ScriptModule:
    """Return a ScriptModule that computes what `module` does, faster. `module` is not changed.

    `module` is a ScriptModule (traced, scripted, frozen or loaded from a file), a program of torch.export or its
    `module()`, whose dynamic sizes stay dynamic, or any other nn.Module together with
    `example_inputs` to trace it with: a tensor, a tuple or list of arguments, or a mapping of keyword arguments. It
    must be in eval mode. The result is an ordinary ScriptModule: save it, load it, copy it, run it from many threads
    or from C++.

    It takes and gives what the model does: ModelOutput of transformers with the caches in it, NamedTuples,
    dataclasses. An input that is no tensor becomes a constant; calls with another value raise. A saved file knows
    tensors, and tuples, lists and dicts of them: loaded, it gives the tensors of other results as a tuple.

    `disable` names passes to leave out; `python -m ipex --passes` lists them. An op of ours that it names, as
    "ipex::softmax", stays aten's. `dtype`, torch.bfloat16 or torch.float16, lets the convolutions and linears of a
    float32 model compute in it; inputs and results keep their dtype. A model that has 16-bit weights, or was traced
    under autocast, needs no `dtype`. `fp32_math_mode`, FP32 or BF32, is the model's own from then on, and saved
    with it; without, the model follows `set_fp32_math_mode`. `stop_after` names the last phase to run, to see what
    those up to it make of a model.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> x = torch.randn(2, 8)
    >>> optimized = ipex.jit_optimize(model, x)
    >>> torch.allclose(optimized(x), model(x), atol=1e-6)
    True
    """
    options = Options(disable, dtype, fp32_math_mode, stop_after)
    script = script_module(module, example_inputs, "jit_optimize")
    if options.disable or options.stop_after:
        refuse_optimized(script, "jit_optimize")
    result = wrapped(_C.jit_optimize(cpp_module(script, "jit_optimize"), **options.for_cpp()), adapter_of(script))
    warn_of_training(result, "jit_optimize", stacklevel=2)
    return result


def script_module(module: Any, example_inputs: Any, caller: str) -> torch.jit.ScriptModule:
    """Return the module to optimise: `module` itself, or a trace of it. `caller` is for messages."""
    if isinstance(module, torch.jit.ScriptModule):
        if example_inputs is not None:
            raise TypeError(
                f"ipex.{caller}: expected no example_inputs with a ScriptModule, got {_kind(example_inputs)}. "
                "It is not traced again: leave them out."
            )
        return module
    if is_exported(module):
        if example_inputs is not None:
            raise TypeError(
                f"ipex.{caller}: expected no example_inputs with an exported program, got {_kind(example_inputs)}. "
                "It is not traced: leave them out."
            )
        return script_of(module, caller)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"ipex.{caller}: expected a ScriptModule, an nn.Module or an exported program, got {_kind(module)}. "
            f"{model_of(module)}"
        )
    refuse_training(module, caller)
    return traced(module, *arguments(example_inputs, caller), caller)


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
