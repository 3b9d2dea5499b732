"""Bugs put in on purpose: an optimised module is wrapped in one, and the fuzzer must find it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import ipex
from fuzz.schemas import METADATA_WRITES
from fuzz.stages import graphs, round_trip
from fuzz.state import NAMES as NAMES_OF_METHODS

Module = torch.jit.ScriptModule
GraphBug = Callable[[torch.Graph, Module], None]  # changes the graph of each method of a module

BUGS: dict[str, type[Wrapper]] = {}  # by name, filled below


def optimize(bug: str | None) -> Callable[..., Any]:
    """ipex.jit_optimize; or a bug in a copy of the module, so that what is found is not a bug of ipex."""
    if bug is None:
        return ipex.jit_optimize

    def planted(module: torch.jit.ScriptModule, dtype: torch.dtype | None = None, disable: tuple[str, ...] = ()) -> Any:
        copy = module if bug == "original_written" else round_trip(module)
        for graph in graphs(copy):
            torch._C._jit_pass_inline(graph)
            if bug in IN_GRAPHS:
                IN_GRAPHS[bug](graph, copy)
        return BUGS[bug](copy, dtype, disable) if bug in BUGS else copy

    return planted


def _without_alpha(graph: torch.Graph, _: Module) -> None:
    """A fusion that recognises add by its name."""
    for node in _nodes(graph):
        if node.kind() in ("aten::add", "aten::add_", "aten::sub", "aten::sub_") and node.inputsSize() == 3:
            graph.setInsertPoint(node)
            node.replaceInput(2, graph.insertConstant(1))


def _out_not_written(graph: torch.Graph, _: Module) -> None:
    """An op with out= that is taken for the one without."""
    for node in _nodes(graph):
        arguments = torch._C.parse_schema(node.schema()).arguments if node.kind().startswith("aten::") else []
        for index, argument in enumerate(arguments):
            if argument.is_out:
                _give_copy(graph, node, index)


def _shape_not_written(graph: torch.Graph, _: Module) -> None:
    """unsqueeze_ and its like change the shape of a tensor that nobody else has."""
    for node in _nodes(graph):
        if node.kind().removeprefix("aten::") in METADATA_WRITES:
            _give_copy(graph, node, 0, "aten::alias")


def _piece_not_written(graph: torch.Graph, _: Module) -> None:
    """A view of part of a tensor is taken for a tensor of its own."""
    for node in _nodes(graph):
        if node.kind().startswith("aten::") and node.kind().endswith("_") and node.inputsSize():
            made = node.inputsAt(0).node().kind()
            if made in ("prim::ListUnpack", "aten::__getitem__", "aten::slice", "aten::select", "aten::narrow"):
                _give_copy(graph, node, 0)


def _list_cut(graph: torch.Graph, _: Module) -> None:
    """Of a list of tensors only the first is looked at."""
    for node in _nodes(graph):
        if node.kind() == "prim::ListConstruct" and node.inputsSize() > 1 and "Tensor" in str(node.output().type()):
            for index in range(1, node.inputsSize()):
                node.replaceInput(index, node.inputsAt(0))


CHANGES = ("append", "_set_item", "insert", "extend", "pop", "clear", "reverse", "Delete", "add_", "update")


def _as_built(kind: str) -> GraphBug:
    """Who reads a list, or a dict, gets what it was made of, whatever was done to it since."""

    def change(graph: torch.Graph, _: Module) -> None:
        for node in _nodes(graph):
            made, readers = node.output() if node.kind() == kind else None, []
            for use in made.uses() if made else ():
                if use.user.kind().removeprefix("aten::") not in CHANGES:
                    readers.append((use.user, use.offset))
            if made and len(readers) < len(made.uses()):
                built = graph.create(kind, list(node.inputs()), 1)
                built.insertAfter(node)
                built.output().setType(made.type())
                for reader, offset in readers:
                    reader.replaceInput(offset, built.output())

    return change


def _kept_copy(graph: torch.Graph, _: Module) -> None:
    """What is put into a list, a dict or an attribute is a copy."""
    for node in _nodes(graph):
        kinds = ("aten::append", "aten::_set_item", "aten::insert", "prim::SetAttr", "prim::DictConstruct")
        last = node.inputsSize() - 1
        if node.kind() in kinds and last >= 0 and str(node.inputsAt(last).type()) == "Tensor":
            _give_copy(graph, node, last)


ELEMENTWISE = ("aten::relu", "aten::tanh", "aten::sigmoid", "aten::gelu", "aten::mul", "aten::reshape", "aten::clone")


def _moved_past_write(graph: torch.Graph, _: Module) -> None:
    """An activation is computed as soon as its operand is there, whatever is written in between."""
    for nodes in _blocks(graph):
        place = {output.debugName(): index for index, node in enumerate(nodes) for output in node.outputs()}
        for node in nodes:
            first, *others = node.inputs() if node.kind() in ELEMENTWISE else [None]
            made = place.get(first.debugName()) if first else None
            if made is None or any(value.node().kind() != "prim::Constant" for value in others):
                continue
            for constant in others:
                if place.get(constant.debugName(), -1) > made:
                    constant.node().moveBefore(first.node())
            node.moveAfter(first.node())


def _results_copied(*kinds: str) -> GraphBug:
    """Views that these give are taken for tensors of their own."""

    def change(graph: torch.Graph, _: Module) -> None:
        for node in _nodes(graph):
            if node.kind().removeprefix("aten::") in kinds:
                _copy_result(graph, node)

    return change


def _constant_written(graph: torch.Graph, module: Module) -> None:
    """What hangs on weights alone is computed once, though it is written."""
    for node in _nodes(graph):
        is_written = any(use.user.kind().endswith("_") and use.offset == 0 for o in node.outputs() for use in o.uses())
        if is_written and node.kind().startswith("aten::") and node.outputsSize() == 1:
            known, value = _value_of(node.output(), module)
            if known:
                graph.setInsertPoint(node)
                node.output().replaceAllUsesWith(graph.insertConstant(value.detach().clone()))


def _value_of(value: Any, module: Module) -> tuple[bool, Any]:
    """Whether it is known before any call, and what it is."""
    node = value.node()
    if node.kind() == "prim::Constant":
        return True, value.toIValue()
    if node.kind() == "prim::Param":
        return value.debugName().startswith("self"), module
    given = [_value_of(v, module) for v in node.inputs()]
    if not all(known for known, _ in given) or not node.kind().startswith(("prim::GetAttr", "aten::")):
        return False, None
    values = [v for _, v in given]
    if node.kind() == "prim::GetAttr":
        return True, getattr(values[0], node.s("name"))
    if node.kind().endswith("_") or len(list(node.outputs())) != 1:
        return False, None
    schema = torch._C.parse_schema(node.schema())
    by_name = {a.name: v for a, v in zip(schema.arguments, values) if a.kwarg_only}
    op = getattr(getattr(torch.ops.aten, node.kind().removeprefix("aten::")), schema.overload_name or "default")
    return True, op(*values[: len(values) - len(by_name)], **by_name)


def _factors_alone(graph: torch.Graph, _: Module) -> None:
    """A product of two factors is rounded to their dtype, or wraps in it, before it is added to a third."""
    for node in _nodes(graph):
        if node.kind() in ("aten::addcmul", "aten::addcmul_") and node.inputsSize() == 4:
            product = graph.create("aten::mul", [node.inputsAt(1), node.inputsAt(2)], 1)
            product.insertBefore(node)
            total = graph.create(
                node.kind().replace("addcmul", "add"), [node.inputsAt(0), product.output(), node.inputsAt(3)], 1
            )
            total.insertBefore(node)
            node.output().replaceAllUsesWith(total.output())


def _numbers_decide(graph: torch.Graph, _: Module) -> None:
    """A factor without dimensions decides the dtype as one with dimensions does."""
    for node in _nodes(graph):
        if node.kind() in ("aten::mul", "aten::add") and str(node.inputsAt(1).type()) == "Tensor":
            graph.setInsertPoint(node)
            whole = graph.create("aten::atleast_1d", [node.inputsAt(1)], 1)
            whole.insertBefore(node)
            node.replaceInput(1, whole.output())


def _nodes(graph: torch.Graph) -> list[Any]:
    return [node for nodes in _blocks(graph) for node in nodes]


def _blocks(block: Any) -> list[list[Any]]:
    """The nodes of each block, from outside in."""
    nodes = list(block.nodes())
    return [nodes, *(inner for node in nodes for b in node.blocks() for inner in _blocks(b))]


def _give_copy(graph: torch.Graph, node: Any, index: int, kind: str = "aten::clone") -> None:
    """Let the node have, in place of this input, a tensor of its own."""
    graph.setInsertPoint(node)
    inputs = [node.inputsAt(index)] + ([graph.insertConstant(None)] if kind == "aten::clone" else [])
    copy = graph.create(kind, inputs, 1)
    copy.insertBefore(node)
    node.replaceInput(index, copy.outputsAt(0))


def _copy_result(graph: torch.Graph, node: Any) -> None:
    """Let all who read a node's result have a tensor of its own."""
    readers = [(use.user, use.offset) for use in node.output().uses()]
    copy = graph.create("aten::alias", [node.output()], 1)
    copy.insertAfter(node)
    for user, offset in readers:
        user.replaceInput(offset, copy.output())
    _give_copy(graph, copy, 0)


# What may give its operand, whatever the schema says.
UNTOLD = ("einsum", "dequantize", "type_as", "sum_to_size", "atleast_1d", "atleast_2d", "atleast_3d", "positive", "to")

# Bugs that are made in the graph; the others are made around the module.
IN_GRAPHS: dict[str, GraphBug] = {
    "alpha_dropped": _without_alpha,
    "out_not_written": _out_not_written,
    "shape_not_written": _shape_not_written,
    "piece_not_written": _piece_not_written,
    "list_cut": _list_cut,
    "list_as_built": _as_built("prim::ListConstruct"),
    "dict_as_built": _as_built("prim::DictConstruct"),
    "kept_copy": _kept_copy,
    "moved_past_write": _moved_past_write,
    "spread_copied": _results_copied("expand", "unfold"),
    "view_copied": _results_copied(*UNTOLD),
    "constant_written": _constant_written,
    "factors_alone": _factors_alone,
    "numbers_decide": _numbers_decide,
}


class Wrapper:
    """A module that does something to arguments or results. What isn't about calls goes to the module itself."""

    def __init__(self, module: Module, dtype: torch.dtype | None, disable: tuple[str, ...]) -> None:
        self.module, self.dtype, self.disable = module, dtype, disable
        self.calls = 0
        names = set(re.findall(r'name="(st\d+)"', str(module.graph)))
        self.states = sorted(name for name in names if hasattr(module, name))  # what state.py names

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
        if isinstance(result, dict):
            return {key: self.each(part, arguments) for key, part in result.items()}
        return type(result)(self.each(part, arguments) for part in result)

    def change(self, result: Tensor, arguments: tuple[Tensor, ...]) -> Tensor:
        return result


class nothing(Wrapper):
    """No bug: what is found then is the fuzzer's own."""


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


class original_written(Wrapper):
    """It shares what it writes with the module that it was made of."""


class state_forgotten(Wrapper):
    def __call__(self, *arguments):
        before = {name: getattr(self.module, name).clone() for name in self.states}
        result = super().__call__(*arguments)
        for name, value in before.items():
            setattr(self.module, name, value)
        return result


class storage_parted(Wrapper):
    def __init__(self, *given):
        super().__init__(*given)
        for name in self.states:
            setattr(self.module, name, getattr(self.module, name).clone())


class methods_apart(Wrapper):
    """What an exported method writes, forward does not see."""

    def __init__(self, *given):
        super().__init__(*given)
        self.other = round_trip(self.module)

    def __getattr__(self, name):
        return getattr(self.other if name in NAMES_OF_METHODS else self.module, name)


class memo_returned(Wrapper):
    """What is computed anew in each call, with the same numbers, is kept: the caller has it, and may write it."""

    def __init__(self, *given):
        super().__init__(*given)
        self.kept = []

    def change(self, result, arguments):
        for kept, numbers in self.kept:
            if numbers.dtype == result.dtype and torch.equal(numbers, result):
                return kept
        self.kept.append((result, result.clone()))
        return result


class disabled_wrong(Wrapper):
    def change(self, result, arguments):
        return result * 2 if self.disable else result


class shuffled_wrong(Wrapper):
    def __init__(self, *given):
        super().__init__(*given)
        self.is_wrong = "IPEX_SHUFFLE" in os.environ

    def change(self, result, arguments):
        return result * 2 if self.is_wrong else result


class verifier_refuses(Wrapper):
    def __init__(self, *given):
        super().__init__(*given)
        if "IPEX_VERIFY" in os.environ:
            raise RuntimeError("planted")


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


NAMES = ("nothing", *(name for name in (*IN_GRAPHS, *BUGS) if name != "nothing"))
