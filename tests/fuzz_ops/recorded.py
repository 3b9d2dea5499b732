"""Calls of our ops that optimised models make: what arguments look like that fit together."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections import defaultdict
from typing import Any, NamedTuple

import torch

import ipex
from fuzz.check import _given_to_optimize
from fuzz.outcome import arguments
from fuzz.stages import build, torchscript
from fuzz.strategies import BYTES, case_of
from kinds_of_model import KINDS, model_and_input

CALLS_OF_AN_OP = 24


class Recorded(NamedTuple):
    """An overload of an op, the types of its arguments, and the arguments of some calls."""

    op: Any
    types: list[str]
    calls: list[list[Any]]


def call(op: Any, given: list[Any]) -> Any:
    """Call it; some arguments of aten's have names only."""
    names = [a.name if a.kwarg_only else None for a in op._schema.arguments]
    return op(
        *(value for value, name in zip(given, names) if name is None),
        **{name: value for value, name in zip(given, names) if name is not None},
    )


class _Recorder:
    """Computes graphs node by node, and keeps the arguments of our ops."""

    def __init__(self) -> None:
        self.calls: dict[Any, list[list[Any]]] = defaultdict(list)
        self.seen: dict[Any, int] = defaultdict(int)
        self.draw = random.Random(0)

    def run(self, module: torch.jit.ScriptModule, inputs: tuple[Any, ...]) -> None:
        """Up to the first node that is no op, and no value of a kind below."""
        graph = module.inlined_graph
        values = dict(zip((v.debugName() for v in graph.inputs()), (module, *inputs)))
        for node in graph.nodes():
            given = [values[v.debugName()] for v in node.inputs()]
            results = self._results(node, given)
            outputs = [v.debugName() for v in node.outputs()]
            values |= dict(zip(outputs, results if len(outputs) > 1 else [results]))

    def _results(self, node: torch._C.Node, given: list[Any]) -> Any:
        kind = node.kind()
        if kind == "prim::Constant":
            value = node.output().toIValue()
            return torch.tensor(value) if str(node.output().type()) == "Tensor" and value is not None else value
        if kind == "prim::GetAttr":
            return getattr(given[0], node.s("name"))
        if kind in ("prim::ListConstruct", "prim::TupleConstruct"):
            return given
        if kind in ("prim::ListUnpack", "prim::TupleUnpack"):
            return given[0] if node.outputsSize() > 1 else given[0][0]
        if kind.startswith("prim::"):
            raise NotImplementedError(kind)  # a branch, say
        space, name = kind.split("::")
        overload = node.schema().split("(")[0].partition(".")[2] or "default"
        op = getattr(getattr(getattr(torch.ops, space), name), overload)
        if space == "ipex":
            self._keep(op, given)
        return call(op, given)

    def _keep(self, op: Any, given: list[Any]) -> None:
        self.seen[op] += 1
        kept = self.calls[op]
        if len(kept) < CALLS_OF_AN_OP:
            kept.append(given)
        elif (place := self.draw.randrange(self.seen[op])) < CALLS_OF_AN_OP:
            kept[place] = given  # any of those seen is as likely to stay


def recorded(cases: int, seed: int) -> list[Recorded]:
    """What models of the tests, and so many drawn by seed, call."""
    recorder = _Recorder()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for name in KINDS:
            model, x = model_and_input(name)
            with contextlib.suppress(NotImplementedError):
                recorder.run(model, (x,))
        draw = random.Random(seed)
        for _ in range(cases):
            with contextlib.suppress(Exception):  # of a model that TorchScript, or a call, refuses
                _record_case(draw.randbytes(BYTES), recorder)
    by_name = sorted(recorder.calls.items(), key=lambda item: str(item[0]))
    return [Recorded(op, [str(a.type) for a in op._schema.arguments], calls) for op, calls in by_name]


def _record_case(data: bytes, recorder: _Recorder) -> None:
    case = case_of(data)
    torch.manual_seed(0)
    module = torchscript(build(case.source), case.how, case.calls[0])
    optimized = ipex.jit_optimize(module, **_given_to_optimize(case))
    for call in case.calls:
        if call.method == "forward":
            recorder.run(optimized, tuple(arguments(call)[1]))


def never_called(found: list[Recorded]) -> list[str]:
    """Which overloads no call was seen of."""
    seen = {str(r.op) for r in found}
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith("ipex::")]
    names = {f"{s.name.replace('::', '.')}.{s.overload_name or 'default'}" for s in schemas}
    return sorted(names - seen)
