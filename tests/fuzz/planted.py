"""Bugs put in on purpose: an optimised module is wrapped in one, and the fuzzer must find it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import ipex
from fuzz.schemas import METADATA_WRITES
from fuzz.stages import frozen

BUGS: dict[str, type[Wrapper]] = {}  # by name, filled below


def optimize(bug: str | None) -> Callable[..., Any]:
    """ipex.jit_optimize; or freezing with a bug, so that what is found is not a bug of ipex."""
    if bug is None:
        return ipex.jit_optimize
    if bug in IN_GRAPHS:
        return lambda module, **_: IN_GRAPHS[bug](frozen(module))
    return lambda module, dtype=None: BUGS[bug](frozen(module), dtype)


def _without_alpha(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """A fusion that recognises add by its name."""
    for kind in ("aten::add", "aten::add_", "aten::sub", "aten::sub_"):
        for node in module.graph.findAllNodes(kind):
            if node.inputsSize() == 3:
                module.graph.setInsertPoint(node)
                node.replaceInput(2, module.graph.insertConstant(1))
    return module


def _out_not_written(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """An op with out= that is taken for the one without."""
    for node in _nodes(module):
        arguments = torch._C.parse_schema(node.schema()).arguments if node.kind().startswith("aten::") else []
        for index, argument in enumerate(arguments):
            if argument.is_out:
                _give_copy(module, node, index)
    return module


def _shape_not_written(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """unsqueeze_ and its like change the shape of a tensor that nobody else has."""
    for node in _nodes(module):
        if node.kind().removeprefix("aten::") in METADATA_WRITES:
            _give_copy(module, node, 0, "aten::detach")
    return module


def _piece_not_written(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """A view of part of a tensor is taken for a tensor of its own."""
    for node in _nodes(module):
        if node.kind().startswith("aten::") and node.kind().endswith("_") and node.inputsSize():
            made = node.inputsAt(0).node().kind()
            if made in ("prim::ListUnpack", "aten::__getitem__", "aten::slice", "aten::select", "aten::narrow"):
                _give_copy(module, node, 0)
    return module


def _list_cut(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Of a list of tensors only the first is looked at."""
    for node in _nodes(module):
        if node.kind() == "prim::ListConstruct" and node.inputsSize() > 1 and "Tensor" in str(node.output().type()):
            for index in range(1, node.inputsSize()):
                node.replaceInput(index, node.inputsAt(0))
    return module


def _nodes(module: torch.jit.ScriptModule) -> list[Any]:
    def inside(block: Any) -> list[Any]:
        return [n for node in block.nodes() for n in [node, *(m for b in node.blocks() for m in inside(b))]]

    return inside(module.graph)


def _give_copy(module: torch.jit.ScriptModule, node: Any, index: int, kind: str = "aten::clone") -> None:
    """Let the node have, in place of this input, a tensor of its own."""
    graph = module.graph
    graph.setInsertPoint(node)
    inputs = [node.inputsAt(index)] + ([graph.insertConstant(None)] if kind == "aten::clone" else [])
    copy = graph.create(kind, inputs, 1)
    copy.insertBefore(node)
    node.replaceInput(index, copy.outputsAt(0))


# Bugs that are made in the graph; the others are made around the module.
IN_GRAPHS = {
    "alpha_dropped": _without_alpha,
    "out_not_written": _out_not_written,
    "shape_not_written": _shape_not_written,
    "piece_not_written": _piece_not_written,
    "list_cut": _list_cut,
}


class Wrapper:
    """A module that does something to arguments or results. What isn't about calls goes to the module itself."""

    def __init__(self, module: torch.jit.ScriptModule, dtype: torch.dtype | None = None) -> None:
        self.module, self.dtype = module, dtype
        self.calls = 0

    def __init_subclass__(cls) -> None:
        BUGS[cls.__name__] = cls

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def __call__(self, *arguments: Tensor) -> Any:
        self.calls += 1
        return self.each(self.module(*arguments), arguments)

    def each(self, result: Any, arguments: tuple[Tensor, ...]) -> Any:
        if isinstance(result, Tensor):
            return self.change(result, arguments)
        return tuple(self.each(part, arguments) for part in result)

    def change(self, result: Tensor, arguments: tuple[Tensor, ...]) -> Tensor:
        return result


class nan_lost(Wrapper):
    def change(self, result, arguments):
        return torch.where(result.isnan(), torch.zeros_like(result), result) if result.isnan().any() else result


class input_written(Wrapper):
    def __call__(self, *arguments):
        result = super().__call__(*arguments)
        with torch.no_grad():
            arguments[-1].mul_(2)
        return result


class other_strides(Wrapper):
    def change(self, result, arguments):
        return result.contiguous()


class last_digits_wrong(Wrapper):
    def change(self, result, arguments):
        return result * (1 + 1e-4) if result.dtype == torch.float32 and not result.requires_grad else result


class small_elements_wrong(Wrapper):
    def change(self, result, arguments):
        if not result.is_floating_point() or not result.numel():
            return result
        return torch.where(result.abs() < result.abs().max() * 1e-3, torch.zeros_like(result), result)


class third_call_wrong(Wrapper):
    def change(self, result, arguments):
        return result * 2 if self.calls > 2 else result


class two_threads_wrong(Wrapper):
    def change(self, result, arguments):
        return result * 2 if torch.get_num_threads() == 2 else result


class float64_forgotten(Wrapper):
    def change(self, result, arguments):
        return result.float() if result.dtype == torch.float64 else result


class empty_batch_raises(Wrapper):
    def change(self, result, arguments):
        if result.numel() == 0:
            raise RuntimeError("planted")
        return result


class errors_swallowed(Wrapper):
    def __call__(self, *arguments):
        try:
            return super().__call__(*arguments)
        except RuntimeError:
            return arguments[0]


class copy_returned(Wrapper):
    def change(self, result, arguments):
        mine = result.untyped_storage().data_ptr()
        return result.clone() if any(a.untyped_storage().data_ptr() == mine for a in arguments) else result


class lost_when_saved(Wrapper):
    def save_to_buffer(self):
        return torch.jit.freeze(torch.jit.script(torch.nn.ReLU().eval())).save_to_buffer()


class autocast_forgotten(Wrapper):
    def __call__(self, *arguments):
        with torch.autocast("cpu", enabled=False):
            return super().__call__(*arguments)


class given_dtype_too_coarse(Wrapper):
    def change(self, result, arguments):
        if self.dtype is None or result.dtype != torch.float32 or result.requires_grad:
            return result
        coarse = result * (1 + 2**-4)
        return coarse if coarse.stride() == result.stride() else result  # another bug, where it differs


class given_dtype_returned(Wrapper):
    def change(self, result, arguments):
        return result.to(self.dtype) if self.dtype is not None and result.dtype == torch.float32 else result


class crash(Wrapper):
    def change(self, result, arguments):
        if result.dim() == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        return result


class hang(Wrapper):
    def change(self, result, arguments):
        if result.dim() == 2:
            time.sleep(100)
        return result


NAMES = (*IN_GRAPHS, *BUGS)
