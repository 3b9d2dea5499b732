"""From the text of a case to an eager model, to TorchScript, and through a file."""

from __future__ import annotations

import io
import linecache
import re
from typing import Any

import torch
from torch import nn

import ipex
from fuzz import tensors
from fuzz.outcome import arguments, settings
from fuzz.strategies import Call


def build(source: str, name: str = "<case>") -> nn.Module:
    """The eager model of a case."""
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)  # TorchScript reads it again
    namespace: dict[str, Any] = {"__name__": "fuzz_case", "settle": tensors.settle}
    exec(compile(source, name, "exec"), namespace)
    return namespace["build"]()  # type: ignore[no-any-return]


def torchscript(model: nn.Module, how: str, call: Call) -> torch.jit.ScriptModule:
    """The model as its user would hand it to ipex."""
    call = call._replace(mode="autocast" if "autocast" in how else "no_grad")
    with settings(call):
        if "trace" in how:
            module = torch.jit.trace(model, tuple(arguments(call)[1]), check_trace=False)
        else:
            module = torch.jit.script(model)
    if "frozen" in how:
        module = torch.jit.freeze(module)
    return round_trip(module) if "loaded" in how else module


def round_trip(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def frozen(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """What ipex starts from: the module frozen, its constants computed, without the ops whose results nobody reads,
    nothing else optimised."""
    copy = torch.jit.freeze(module, optimize_numerics=False) if hasattr(module, "training") else round_trip(module)
    torch._C._jit_pass_constant_propagation(copy.graph)
    torch._C._jit_pass_dce(copy.graph)
    return copy


def what_was_fused(optimized: torch.jit.ScriptModule) -> set[str]:
    """The packed ops of the graph, and the passes that changed it."""
    found = {f"op {name}" for name in re.findall(r"ipex::\w+", str(optimized.inlined_graph))}
    return found | {f"pass {decision.pass_name}" for decision in ipex.explain(optimized).applied}
