"""Files with packed weights: docs/how_to/ahead_of_time.md."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from . import isa as _isa
from ._inputs import arguments_of_calls, in_order
from ._load_extension import _C
from ._math_mode import FP32MathMode, get_fp32_math_mode, set_fp32_math_mode
from ._script_module import cpp_module, is_optimized, load, wrapped


def aot_save(
    model: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    isa: _isa.Level | str | None = None,
    example_inputs: Any = None,
) -> None:
    """Write an optimised model with its weights packed. `aot_load` then has nothing to pack.

    `isa` names the instructions to pack for, by default those that this process uses: "avx512" for a server that has
    AVX-512 and nothing beyond it. They must be instructions of this CPU. Others than this process uses are those of a
    process that this one starts.

    The model is called with `example_inputs`: a tensor, a tuple or list of arguments, a mapping of keyword arguments,
    or a list of such tuples or mappings. So what calls make of a weight is in the file too: a copy in bfloat16, or one
    for Winograd's algorithm. What is not in the file, the first call that wants it makes.

    Of what `ipex.llm.optimize` returns, `path` is a folder: it holds the step, and what `generate` asks of the model.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> x = torch.randn(2, 8)
    >>> ipex.aot_save(ipex.jit_optimize(model, x), "model.ipex", example_inputs=x)
    >>> ipex.aot_load("model.ipex")(x).shape
    torch.Size([2, 4])
    """
    if _has_step(model):
        from .llm import _saved

        if example_inputs is not None:
            raise ValueError("ipex.aot_save: expected no example_inputs for a language model, got some. Leave it out.")
        _saved.save(model, path, partial(aot_save, isa=isa))
        return
    cpp = cpp_module(model, "aot_save")
    calls = arguments_of_calls(example_inputs, "aot_save")
    if not is_optimized(model):
        raise ValueError(
            "ipex.aot_save: expected an optimised model, got one that is not. Call ipex.jit_optimize first."
        )
    level = None if isa is None else str(isa).lower()
    names = [str(known) for known in _isa.Level]
    if level is not None and level not in names:
        raise ValueError(f"ipex.aot_save: expected isa to be one of {', '.join(names)}, got {isa!r}.")
    if level is not None and _isa.Level[level.upper()] > _isa.highest_cpu():
        raise ValueError(
            f"ipex.aot_save: expected instructions of this CPU, {_isa.highest_cpu()} at most, got isa={level!r}. "
            "Save the model on a CPU that has them."
        )
    inputs = [in_order(cast(torch.jit.ScriptModule, model), *call, "aot_save") for call in calls]
    if level is None or level == str(_isa.current()):
        _C.aot_save(cpp, os.fspath(path), inputs)
    else:
        _save_in_a_process(cpp, os.fspath(path), level, inputs)


def aot_load(path: str | os.PathLike[str], *, check_at_load: bool = True) -> Any:
    """Load a model that `aot_save` wrote. Weights are mapped, and shared with other processes that load the file.

    Of a folder, a language model of transformers comes back, which generates.

    Warns where they have to be packed again: for other instructions, or another version of ipex. A damaged file raises
    RuntimeError. With `check_at_load=False` a packed weight is compared with its checksum when it is first used, so
    that no more of the file is read than is used. While the model lives, the file may be replaced or removed, but not
    written to.
    """
    if Path(path).is_dir():
        from .llm import _saved

        return _saved.load(path, partial(aot_load, check_at_load=check_at_load))
    return wrapped(_C.aot_load(os.fspath(path), check_at_load))


def aot_describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a file that `aot_save` wrote says of itself: versions, instructions, numbers of weights and bytes.

    `packed_again` is why weights would be packed again in this process, or "".
    """
    return dict(_C.aot_describe(os.fspath(path)))


def _has_step(model: Any) -> bool:
    call = vars(model).get("_compiled_call_impl") if isinstance(model, torch.nn.Module) else None
    return type(call).__module__.startswith("ipex.llm.")


def _save_in_a_process(cpp: Any, path: str, level: str, inputs: list[tuple[Any, ...]]) -> None:
    """Save in a process of its own: which instructions are used is chosen once for a process."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save(inputs, Path(folder) / "inputs.pt")
        cpp.save(str(Path(folder) / "model.pt"))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        for cap in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
            environment.pop(cap, None)
        code = "import sys, ipex; from ipex._aot import save_files; save_files(*sys.argv[1:])"
        done = subprocess.run(
            [sys.executable, "-c", code, folder, path, level, get_fp32_math_mode().name],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "expected" in line), done.stderr.strip())
        raise RuntimeError(f"ipex.aot_save: expected a file for isa={level!r}, got an error: {reason}")


def save_files(folder: str, path: str, level: str, math_mode: str) -> None:
    """Save the model and inputs of a folder for these instructions, which are this process's from now on."""
    _C.isa_limit(level)
    set_fp32_math_mode(FP32MathMode[math_mode])
    inputs = torch.load(Path(folder) / "inputs.pt", weights_only=True)
    _C.aot_save(load(Path(folder) / "model.pt")._c, path, inputs)
