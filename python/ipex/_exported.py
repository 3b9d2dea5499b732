"""Programs of torch.export as TorchScript: node by node, so that sizes that are dynamic stay so."""

from __future__ import annotations

import copy
import inspect
import math
import operator
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ._adapter import AdaptedCall, Adapter, named
from ._structure import Structure, taken_apart
from ._torch_internals import HigherOrderOperator, OpOverload, torchscript_is_meant
from ._tracing import difference

_aten = torch.ops.aten
# What stands for a size in a program, and in TorchScript.
_OF_SIZES = {
    _aten.sym_size.int: _aten.size,
    _aten.sym_stride.int: _aten.stride,
    _aten.sym_numel.default: _aten.numel,
    _aten.sym_storage_offset.default: _aten.storage_offset,
    torch.sym_int: int,
    torch.sym_float: float,
    torch.sym_max: max,
    torch.sym_min: min,
    torch.sym_not: operator.not_,
}
# They check what was exported, and compute nothing.
_CHECKS = ("_assert", "sym_constrain_range", "_guards_fn")


@dataclass(frozen=True)
class _FlatAdapter(Adapter):
    """The graph of a program takes each tensor by itself."""

    def for_trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        found: list[Tensor] = []
        for value in super().for_trace(args, kwargs):
            found.extend(value if isinstance(value, tuple) else [value])
        return tuple(found)


def is_exported(module: Any) -> bool:
    """Whether it is a program of torch.export, or what its `module()` returns."""
    if isinstance(module, torch.export.ExportedProgram):
        return True
    # torch gives such modules an `eval` that refuses.
    return (
        isinstance(module, fx.GraphModule) and hasattr(module.graph._codegen, "pytree_info") and "eval" in vars(module)
    )


def script_of(exported: Any, caller: str) -> torch.jit.ScriptModule:
    """Return the program as a ScriptModule. It is called as the program's module is, and gives what that gives."""
    is_program = isinstance(exported, torch.export.ExportedProgram)
    module = exported.module() if is_program else exported
    signature = inspect.signature(module.forward)
    info = module.graph._codegen.pytree_info
    with torchscript_is_meant():
        # of annotations in torch's own GraphModule
        warnings.filterwarnings("ignore", "The TorchScript type system doesn't support instance-level annotations")
        script: torch.jit.ScriptModule = torch.jit.script(_as_torch_script(module, caller))
    values = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    args, kwargs = info.in_spec.unflatten(values)
    arguments: dict[str, Structure | None] = {}
    tensors: list[Tensor] = []
    for name, value in named(signature, args, kwargs).items():
        structure = taken_apart(value, tensors, name)
        arguments[name] = None if isinstance(value, Tensor) else structure
    given = [value for value in values if isinstance(value, Tensor)]
    results: list[Tensor] = []
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    leaves = [leaf.meta["val"] if isinstance(leaf, fx.Node) else leaf for leaf in output.args[0]]
    answer = info.out_spec.unflatten(leaves)
    result = None if isinstance(answer, Tensor) else taken_apart(answer, results)
    in_order = list(map(id, tensors)) == list(map(id, given))
    if not in_order or (
        result is not None and list(map(id, results)) != [id(x) for x in leaves if isinstance(x, Tensor)]
    ):
        raise TypeError(
            f"ipex.{caller}: expected an exported program of tensors, tuples, lists and dicts, got other classes. "
            "Export a module that takes and gives these."
        )
    is_flat_tuple = result is not None and result.kind is tuple and all(part.kind is Tensor for part in result.parts)
    # TorchScript gives an argument called `input` another name.
    forward: Any = script.forward
    has_names = [argument.name for argument in forward.schema.arguments[1:]] == list(arguments)
    if not has_names or any(arguments.values()) or (result is not None and not is_flat_tuple):
        adapter = _FlatAdapter(signature, arguments, None if is_flat_tuple else result)
        script.__dict__["_compiled_call_impl"] = AdaptedCall(script._call_impl, adapter)
    if is_program and exported.example_inputs is not None:
        _compare(module, script, exported.example_inputs, caller)
    return script


@torch.no_grad()
def _compare(module: Any, script: Any, example: Any, caller: str) -> None:
    (args, kwargs), (own_args, own_kwargs) = copy.deepcopy(example), copy.deepcopy(example)
    found = difference(module(*args, **kwargs), script(*own_args, **own_kwargs))
    if found is not None:
        warnings.warn(
            f"ipex.{caller}: expected the graph of the program to compute what the program does, but {found}.",
            stacklevel=6,
        )


def _as_torch_script(module: fx.GraphModule, caller: str) -> fx.GraphModule:
    """Return a module with the same nodes, of ops that TorchScript finds by their arguments."""
    graph, made = fx.Graph(), {}
    for node in module.graph.nodes:
        name = getattr(node.target, "__name__", str(node.target))
        if node.op == "placeholder":
            value = node.meta.get("val")
            if isinstance(value, Tensor):
                made[node] = graph.placeholder(node.name)
            elif node.users:
                raise TypeError(
                    f"ipex.{caller}: expected an exported program whose inputs are tensors, got a number in "
                    f"{node.name} that is dynamic. Export it with this number as a constant."
                )
        elif name.startswith(_CHECKS):
            continue
        elif node.op == "output":
            graph.output(_result(node.args[0], made))
        elif node.op in ("call_function", "get_attr"):
            copied = graph.node_copy(node, lambda used: made[used])
            if node.op == "call_function":
                copied.target = _target(node.target, caller)
                with graph.inserting_before(copied):
                    copied.args = fx.node.map_aggregate(copied.args, lambda value: _argument(graph, value))
                    copied.kwargs = fx.node.map_aggregate(copied.kwargs, lambda value: _argument(graph, value))
            made[node] = copied
        else:
            raise TypeError(
                f"ipex.{caller}: expected an exported program of aten's ops, got a call of {name}. Control flow and "
                "regions of other modes can't be converted: give the nn.Module and example_inputs."
            )
    graph.eliminate_dead_code()
    return fx.GraphModule(module, graph).eval()


def _target(target: Any, caller: str) -> Any:
    if target in _OF_SIZES:
        return _OF_SIZES[target]
    if isinstance(target, OpOverload):
        return target.overloadpacket
    if isinstance(target, HigherOrderOperator):
        raise TypeError(
            f"ipex.{caller}: expected an exported program of aten's ops, got {target.name()}. Control flow and regions "
            "of other modes can't be converted: give the nn.Module and example_inputs."
        )
    return target


def _argument(graph: fx.Graph, value: Any) -> Any:
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return graph.call_function(float, (str(value),))
    return value


def _result(leaves: Any, made: dict[fx.Node, fx.Node]) -> Any:
    tensors = tuple(made[leaf] for leaf in leaves if isinstance(leaf, fx.Node) and isinstance(leaf.meta["val"], Tensor))
    return tensors[0] if len(tensors) == 1 == len(leaves) else tensors
