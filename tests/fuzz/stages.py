"""From the text of a case to an eager model, to TorchScript, and through a file."""

from __future__ import annotations

import copy
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
            state = [*model.parameters(), *model.buffers(), *plain_tensors(model)]
            before = [tensor.clone() for tensor in state]
            module = torch.jit.trace(model, tuple(arguments(call)[1]), check_trace=False, strict=False)
            for tensor, value in zip(state, before):  # to trace it is to call it
                tensor.copy_(value)
        else:
            module = torch.jit.script(model)
    if "frozen" in how:
        module = torch.jit.freeze(module, preserved_attrs=other_methods(module))
    return round_trip(module) if "loaded" in how else module


def plain_tensors(model: nn.Module) -> list[torch.Tensor]:
    """Attributes that are neither parameters nor buffers."""
    return [t for module in model.modules() for t in vars(module).values() if isinstance(t, torch.Tensor)]


def other_methods(module: torch.jit.ScriptModule) -> list[str]:
    return [name for name in module._c._method_names() if name != "forward"]


def round_trip(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def frozen(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """What ipex starts from: the module frozen, its constants computed, without the ops whose results nobody reads,
    nothing else optimised."""
    if hasattr(module, "training"):
        names = other_methods(module)
        result = torch.jit.freeze(copied(module), preserved_attrs=names, optimize_numerics=False)
    else:
        result = round_trip(module)
    for graph in graphs(result):
        torch._C._jit_pass_constant_propagation(graph)
        torch._C._jit_pass_dce(graph)
    return result


def copied(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """The module itself, or a copy where it has what it may write."""
    return copy.deepcopy(module) if any(True for _ in module.buffers()) else module


def graphs(module: torch.jit.ScriptModule) -> list[torch.Graph]:
    """Of all methods."""
    return [module._c._get_method(name).graph for name in ("forward", *other_methods(module))]


def what_was_fused(optimized: torch.jit.ScriptModule) -> set[str]:
    """The packed ops of the graph, and the passes that changed it."""
    found = {f"op {name}" for name in re.findall(r"ipex::\w+", str(optimized.inlined_graph))}
    return found | {f"pass {decision.pass_name}" for decision in ipex.explain(optimized).applied}
