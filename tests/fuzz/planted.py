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
from fuzz.stages import frozen

BUGS: dict[str, type[Wrapper]] = {}  # by name, filled below


def optimize(bug: str | None) -> Callable[[torch.jit.ScriptModule], Any]:
    """ipex.jit_optimize; or freezing with a bug, so that what is found is not a bug of ipex."""
    if bug is None:
        return ipex.jit_optimize
    if bug == "alpha_dropped":
        return lambda module: _without_alpha(frozen(module))
    return lambda module: BUGS[bug](frozen(module))


def _without_alpha(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """A fusion that recognises add by its name."""
    for kind in ("aten::add", "aten::add_", "aten::sub", "aten::sub_"):
        for node in module.graph.findAllNodes(kind):
            if node.inputsSize() == 3:
                module.graph.setInsertPoint(node)
                node.replaceInput(2, module.graph.insertConstant(1))
    return module


class Wrapper:
    """A module that does something to arguments or results. What isn't about calls goes to the module itself."""

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        self.module = module
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


NAMES = ("alpha_dropped", *BUGS)
