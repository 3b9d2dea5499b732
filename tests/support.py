"""What the tests share: IR text in and out of one pass, and comparison with eager."""

from __future__ import annotations

import copy
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import ipex
from ipex import _C
from ipex.quantization import Recipe, convert, prepare

# fp32 through other kernels: sums are taken in another order. Relative to the largest element compared.
FP32_TOLERANCE = 1e-5
# Factors rounded to bfloat16, each by up to 2^-9 of itself.
BF32_TOLERANCE = 2**-7
# Whether bytes are multiplied as bytes. Other CPUs compute in floats, and quantise only where a recipe is forced.
HAS_INT8 = ipex.isa.has_avx512_vnni() or ipex.isa.has_avx2_vnni()


class Rewritten(NamedTuple):
    """A graph after a pass, and what the pass said."""

    graph: str
    report: ipex.Report

    def count(self, kind: str) -> int:
        """How many nodes of this kind there are."""
        return len(re.findall(rf"\b{re.escape(kind)}[\[(]", self.graph))


def graph_ir(inputs: str, *lines: str, returns: str) -> str:
    """IR text with the indentation that the parser minds, and every argument where a call leaves some out."""
    all_lines = itertools.chain.from_iterable(with_defaults(line, str(i)) for i, line in enumerate(lines))
    return f"graph({inputs}):\n" + "".join(f"  {line}\n" for line in all_lines) + f"  return ({returns})\n"


def with_defaults(line: str, mark: str) -> list[str]:
    """The line, behind constants for what a call of an op of ours, `ipex::name.overload(..)`, leaves out."""
    call = re.fullmatch(r"([^=]*= )(ipex::\w+)\.?(\w*)\((.*)\)", line)
    if call is None:
        return [line]
    result, op, overload, given = call.groups()
    count = len(given.split(", ")) if given else 0
    schemas = torch._C._jit_get_schemas_for_operator(op)
    left_out = [s.arguments[count:] for s in schemas if s.overload_name == overload]
    if not left_out or not left_out[0] or not left_out[0][0].has_default_value():
        return [line]
    constants, names, indent = [], [], re.match(" *", line)[0]
    for argument in left_out[0]:
        value, kind = argument.default_value, argument.type.annotation_str
        names.append(f"%{argument.name}_by_default_{mark}")
        text = f"annotate({kind}, [])" if value == [] else str(int(value)) if value is not None else ""
        of_type = {"bool": "bool", "List[bool]": "bool[]", "List[float]": "float[]", "List[int]": "int[]"}
        type_ = of_type[kind] if value is not None else "NoneType"
        constants.append(f"{indent}{names[-1]} : {type_} = prim::Constant{f'[value={text}]' if text else ''}()")
    return [*constants, f"{result}{op}({', '.join([given, *names])})"]


def assert_rewrites(pass_name: str, ir: str) -> Rewritten:
    """Run one pass that must change the graph; the caller looks at the result."""
    graph, changed, rows = _C.run_pass(pass_name, ir)
    report = ipex.Report(tuple(ipex.Decision(*row) for row in rows))
    assert changed, f"{pass_name} left the graph as it was:\n{graph}\n{report}"
    return Rewritten(graph, report)


def assert_unchanged(pass_name: str, ir: str, reason: str | None) -> None:
    """Run one pass that must leave the graph alone and, unless `reason` is None, say why in these words."""
    graph, changed, rows = _C.run_pass(pass_name, ir)
    before = _C.run_pass("explain_leftovers", ir)[0]  # a pass that changes nothing: the same text, printed the same way
    assert not changed, f"{pass_name} changed the graph:\n{graph}"
    assert graph == before
    reasons = [row[3] for row in rows if not row[2]]
    if reason is None:
        assert reasons == []
    else:
        assert any(reason in r for r in reasons), f"expected '{reason}', got {reasons}"


def kinds(module: torch.jit.ScriptModule) -> Counter[str]:
    """How many nodes of each kind the module has, and of each overload of ours, blocks inside if and loop included."""
    found: Counter[str] = Counter()
    for node in nodes_of(module.inlined_graph):
        found[node.kind()] += 1
        overload = node.schema().split("(")[0].partition(".")[2] if node.kind().startswith("ipex::") else ""
        if overload:
            found[f"{node.kind()}.{overload}"] += 1
    return found


def nodes_of(block: Any) -> Iterator[Any]:
    """The nodes of a graph or a block, blocks inside if and loop included."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes_of(inner)


def ports(module: torch.jit.ScriptModule) -> Counter[str]:
    """How often an op of ours is given an argument with another value than its default: "convolution_run widths"."""
    found: Counter[str] = Counter()
    for node in nodes_of(module.inlined_graph):
        name = node.kind().removeprefix("ipex::")
        if name != node.kind():
            for argument, value in zip(torch._C.parse_schema(node.schema()).arguments, node.inputs()):
                is_constant = value.node().kind() == "prim::Constant"
                is_default = is_constant and value.toIValue() == argument.default_value
                found[f"{name} {argument.name}"] += argument.has_default_value() and not is_default
    return found


def told(graph: Rewritten | torch.jit.ScriptModule, kind: str) -> list[dict[str, Any]]:
    """For each node of this kind the constants among its arguments, by their names."""
    parsed = torch._C.parse_ir(graph.graph) if isinstance(graph, Rewritten) else graph.inlined_graph
    found = []
    for node in parsed.findAllNodes(kind):
        schemas = [s for s in torch._C._jit_get_schemas_for_operator(kind) if str(s) == node.schema()]
        given = zip(schemas[0].arguments, node.inputs())
        found.append({a.name: v.toIValue() for a, v in given if v.node().kind() == "prim::Constant"})
    return found


def assert_same(actual: Any, expected: Any, tolerance: float = FP32_TOLERANCE) -> None:
    """Same structure, dtype, shape, strides and values; NaN where NaN is expected."""
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        actual, expected = list(actual.values()), list(expected.values())
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected):
            assert_same(a, e, tolerance)
        return
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.stride() == expected.stride()
    finite = expected[torch.isfinite(expected)]
    scale = finite.abs().max().item() if finite.numel() and finite.dtype != torch.bool else 1.0
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * max(scale, 1e-3), equal_nan=True)


def check_against_eager(
    model: nn.Module, *inputs: Tensor, script: bool = False, also: tuple[Tensor | tuple[Tensor, ...], ...] = ()
) -> torch.jit.ScriptModule:
    """Optimise the model and compare it with eager on `inputs`, and on each further input, or inputs, in `also`.

    The inputs must end as eager leaves them, and the optimised module is returned.
    """
    model = model.eval()
    with torch.no_grad():
        module = torch.jit.script(model) if script else torch.jit.trace(model, copy.deepcopy(inputs), check_trace=False)
        optimized = ipex.jit_optimize(module)
        for arguments in (inputs, *(x if isinstance(x, tuple) else (x,) for x in also)):
            eager_inputs, our_inputs = copy.deepcopy(arguments), copy.deepcopy(arguments)
            expected = model(*eager_inputs)
            for _ in range(3):  # TorchScript recompiles after the first calls
                our_inputs = copy.deepcopy(arguments)
                assert_same(optimized(*our_inputs), expected)
                for ours, eager in zip(our_inputs, eager_inputs):
                    assert torch.equal(ours.nan_to_num(), eager.nan_to_num())
    return optimized


def canonical_graph(module: torch.jit.ScriptModule) -> str:
    """The computation of the results as text, in which names and the order of independent nodes do not count."""
    lines: list[str] = []
    graph = module.inlined_graph
    names: dict[str, str] = {v.debugName(): f"input{i}" for i, v in enumerate(graph.inputs())}

    def name_of(value: Any) -> str:
        node, key = value.node(), value.debugName()
        if key not in names and node.kind() == "prim::Constant":
            constant = value.toIValue()
            # A number that tracing recorded as a tensor is no longer marked as one when it has been saved.
            is_number = isinstance(constant, Tensor) and constant.dim() == 0
            names[key] = repr(constant.item() if is_number else constant)
        if key not in names and node.kind() == "prim::ListConstruct":
            names[key] = f"[{', '.join([name_of(v) for v in node.inputs()])}]"
        if key not in names:
            arguments = ", ".join([name_of(v) for v in node.inputs()])
            attribute = node.s("name") if node.kind() == "prim::GetAttr" else ""
            first = len(lines)
            names.update({v.debugName(): f"v{first}.{i}" for i, v in enumerate(node.outputs())})
            lines.append(f"v{first} = {node.kind()}[{attribute}]({arguments})")
            for block in node.blocks():
                lines.append("block -> " + ", ".join([name_of(v) for v in block.outputs()]))
        return names[key]

    results = [name_of(v) for v in graph.outputs()]
    return "\n".join([*lines, f"return {', '.join(results)}"])


def assert_round_trip(optimized: torch.jit.ScriptModule, folder: Path, *inputs: Tensor) -> torch.jit.ScriptModule:
    """Save and load: the same graph and the same bits."""
    with torch.no_grad():
        optimized.save(folder / "model.pt")
        loaded = ipex.load(folder / "model.pt")
        assert canonical_graph(loaded) == canonical_graph(optimized)
        expected, actual = optimized(*inputs), loaded(*inputs)
        assert_same(actual, expected, tolerance=0)
    return loaded


def assert_same_error(ours: Callable[[], object], eager: Callable[[], object]) -> None:
    """Both raise an error of one type, whose first line is the same."""
    with pytest.raises((RuntimeError, IndexError)) as expected:
        eager()
    with pytest.raises(type(expected.value)) as actual:
        ours()
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]


def contexts(optimized: torch.jit.ScriptModule) -> list[Any]:
    """The packed ops of this module, in the order of the graph: what holds weights."""
    found: list[Any] = []
    for i in itertools.count():
        packed = getattr(optimized, f"packed_{i}", None)
        if packed is None:
            return found
        layers = packed.layers() if hasattr(packed, "layers") else [packed]
        found += [layer for layer in layers if hasattr(layer, "fallback_reasons")]


def packed_post_ops(optimized: torch.jit.ScriptModule) -> list[list[str]]:
    """The post-ops of each packed op."""
    return [context.__getstate__()[0][3] for context in contexts(optimized)]


def fallback_reasons(optimized: torch.jit.ScriptModule) -> list[str]:
    """Why packed ops of this module left calls to aten."""
    return [reason for context in contexts(optimized) for reason in context.fallback_reasons()]


def optimized_for(model: nn.Module, *inputs: Tensor, mode: ipex.FP32MathMode | None = None) -> torch.jit.ScriptModule:
    """Trace and optimise the model."""
    return ipex.jit_optimize(torch.jit.trace(model.eval(), inputs), fp32_math_mode=mode)


def primitive_count(optimized: torch.jit.ScriptModule) -> int:
    """How many primitives the one packed op has made: none where kernels of our own computed all calls."""
    (context,) = contexts(optimized)
    return int(context.cached_primitives())


@contextmanager
def own_thread_count() -> Iterator[None]:
    """Give the caller's number of threads back, whatever it is set to meanwhile."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def same_padding(x: Tensor, conv: Any) -> list[int]:
    """TensorFlow's "same", which follows from the size of the image, as F.pad takes it."""
    widths: list[int] = []
    for d in range(x.dim() - 1, 1, -1):
        size, stride = x.size(d), conv.stride[d - 2]
        total = ((size + stride - 1) // stride - 1) * stride + conv.kernel_size[d - 2] - size
        total = total.clamp(min=0) if isinstance(total, Tensor) else max(total, 0)
        widths += [total // 2, total - total // 2]
    return widths


def converted(model: nn.Module, *inputs: Tensor) -> torch.jit.ScriptModule:
    """The model in static int8, after it has seen each of these inputs."""
    with torch.no_grad():
        prepared = prepare(model, inputs[0], Recipe("min_max", forced=True))
        for x in inputs:
            prepared(x)
    return convert(prepared)


def calls_of(op: str, model: torch.jit.ScriptModule, x: Tensor) -> int:
    """How often a call of the warm model runs this op by itself, as a profiler sees it."""
    for _ in range(3):
        model(x)
    with torch.profiler.profile() as profile:
        model(x)
    return sum(event.name == op for event in profile.events())


def why_aten(call: Callable[[], object]) -> str | None:
    """The reason why an op without a context left a call to aten, if it did."""
    with torch.profiler.profile() as profile:
        call()
    reasons = [event.name.partition("in aten: ")[2] for event in profile.events() if "in aten: " in event.name]
    return reasons[0] if reasons else None


def kernel_of(call: Callable[[], object], note: int = 0) -> tuple[str, dict[str, str]]:
    """The kernel of a list that computes a call, and why not those before it: as the note of this number says."""
    with torch.profiler.profile() as profile:
        call()
    events = sorted(profile.events(), key=lambda event: event.time_range.start)
    notes = [e.name.partition(" by ")[2] for e in events if e.name.startswith("ipex::") and " by " in e.name]
    kernel, *rejected = notes[note].split("; not ")
    return kernel, dict(each.split(": ", 1) for each in rejected)


def fast(call: Callable[[], object]) -> bool:
    """Whether the kernel of an op without a context computes the call."""
    return why_aten(call) is None


def skip_if_aten_has_no_limit(activation: object) -> None:
    """aten's gelu of infinity is NaN with some CPUs and versions of torch: then there is nothing to compare with."""
    if activation in ("gelu", F.gelu) and F.gelu(torch.full((64,), torch.inf)).isnan().any():
        pytest.skip("aten's gelu of infinity is NaN here")


class SeenOps(TorchDispatchMode):
    """A mode that notes the ops it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))
