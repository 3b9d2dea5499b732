"""What ipex uses of torch that torch does not document. Where a new torch lacks it, this is the file to mend.

No other file of the package names something of torch's that begins with an underscore.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._library import fake_class_registry as fake_class_registry
from torch.utils._foreach_utils import _get_fused_kernels_supported_devices
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_flatten_with_path as tree_flatten_with_path
from torch.utils._pytree import tree_map as tree_map

TracerWarning = torch.jit._trace.TracerWarning
TensorType = torch._C.TensorType
OpOverload = torch._ops.OpOverload
HigherOrderOperator = torch._ops.HigherOrderOperator


@contextmanager
def torchscript_is_meant() -> Iterator[None]:
    """Inside, torch does not announce the end of TorchScript: a caller of ours did not ask for a trace."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*torch\.jit\.", DeprecationWarning)
        yield


def trace(module: torch.nn.Module, example_inputs: Any = None, **more: Any) -> torch.jit.ScriptModule:
    """Return what torch.jit.trace does."""
    with torchscript_is_meant():
        traced: torch.jit.ScriptModule = torch.jit.trace(module, example_inputs, check_trace=False, **more)
        return traced


def is_tracing() -> bool:
    """Whether torch.jit.trace runs."""
    return torch._C._get_tracing_state() is not None


@contextmanager
def tracing_paused() -> Iterator[None]:
    """What is computed inside is a constant to a trace."""
    trace = torch._C._get_tracing_state()
    if trace is None:  # inside a __torch_dispatch__ the state can't even be set to what it is
        yield
        return
    torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch._C._set_tracing_state(trace)  # type: ignore[attr-defined]


def held_by_trace() -> dict[Any, Any] | None:
    """Return what torch.jit.trace holds until it is done, or None where nothing is traced."""
    held: dict[Any, Any] | None = torch.jit._trace._trace_module_map
    return held


def is_in_functorch() -> bool:
    """Whether a transform of torch.func runs. It knows aten's ops, not ours."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def graph_break() -> None:
    """End the graph that Dynamo makes: what follows is called as it is."""
    torch._dynamo.graph_break()


def uses_of_storage(storage: torch.UntypedStorage) -> int:
    """Return how many tensors and storages refer to this memory."""
    uses: int = torch._C._storage_Use_Count(storage._cdata)
    return uses


def without_torch_function() -> AbstractContextManager[Any]:
    """Inside, subclasses of Tensor are not asked by __torch_function__."""
    disabled: AbstractContextManager[Any] = torch._C.DisableTorchFunctionSubclass()
    return disabled


def overlaps_itself(tensor: Tensor) -> bool:
    """Whether two elements share memory, as after expand."""
    return torch._debug_has_internal_overlap(tensor) == 1


def memory_format_of(tensor: Tensor) -> torch.memory_format:
    """Return the memory format that aten's convolutions would take this tensor for."""
    found: torch.memory_format = torch._prims_common.suggest_memory_format(tensor)
    return found


def argument_names_of(forward: Any) -> list[str]:
    """Return the names that torch.jit.trace gives the arguments."""
    names: list[str] = torch._jit_internal.get_callable_argument_names(forward)
    return names


def wrap_cpp_module(cpp: Any) -> torch.jit.ScriptModule:
    """Return a ScriptModule of a C++ module."""
    module: torch.jit.ScriptModule = torch.jit._recursive.wrap_cpp_module(cpp)
    return module


def devices_of_fused_steps() -> list[str]:
    """Return the kinds of devices for which torch's optimizers have fused steps."""
    devices: list[str] = _get_fused_kernels_supported_devices()
    return devices


def has_lstm_of(dtype: torch.dtype) -> bool:
    """Whether an LSTM of these 16 bits runs under autocast: only oneDNN computes it, where the CPU has instructions."""
    mkldnn = torch.ops.mkldnn
    has = mkldnn._is_mkldnn_bf16_supported if dtype == torch.bfloat16 else mkldnn._is_mkldnn_fp16_supported
    return bool(has())


def scaled_mm(a: Tensor, b: Tensor, **options: Any) -> Tensor:
    """Multiply two matrices of FP8."""
    product: Tensor = torch._scaled_mm(a, b, **options)
    return product


def grouped_mm(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Multiply groups of rows, which end at `ends`, each by a weight of its own."""
    product: Tensor = torch._grouped_mm(rows, weights, offs=ends)
    return product
