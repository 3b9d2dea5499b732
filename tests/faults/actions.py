"""What is done while something fails: all that a model goes through, and the tensors that it must leave alone."""

from __future__ import annotations

import copy
import gc
import io
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace as State
from typing import Any

import torch
from torch import Tensor, nn

import ipex
from kinds_of_model import KINDS
from optimizer_cases import CASES as OPTIMIZERS

Prepare = Callable[[], State]


@dataclass(frozen=True)
class Action:
    """`prepare` and `value` run undisturbed. What `act` gives is no result yet: `value` makes tensors of it."""

    prepare: Prepare
    act: Callable[[State], Any]
    value: Callable[[State, Any], Any] = lambda state, result: result
    tolerance: float = 1e-4  # relative to the largest element
    may_be_half_done: bool = False  # after an error: then it is tried again with another state
    is_repeated: bool = False  # with one state: what is left of a repetition then shows to the byte


# Which round: a layer that is left to aten for want of memory gives results that lie this far apart.
ROUNDS = ("bfloat16", "pairs", "rounds", "int8", "int4", "E4M3", "dtype")


def _tolerance(kind: str) -> float:
    return 5e-2 if any(word in kind for word in ROUNDS) else 1e-4


def _plain(kind: str) -> State:
    """The model, and its input."""
    torch.manual_seed(7)
    model = KINDS[kind].make().eval()
    x = KINDS[kind].x()
    return State(model=model, x=x, tensors=[x, *model.parameters(), *model.buffers()])


def _traced(kind: str) -> State:
    state = _plain(kind)
    state.script = torch.jit.trace(state.model, state.x, check_trace=False)
    return state


def _optimized(kind: str, calls: int = 0) -> State:
    state = _plain(kind)
    state.module = KINDS[kind].optimize(state.model, state.x)
    for _ in range(calls):
        state.module(state.x)
    return state


def _saved(kind: str) -> State:
    state = _optimized(kind)
    file = io.BytesIO()
    torch.jit.save(state.module, file)
    state.bytes = file.getvalue()
    return state


def _in_a_file(kind: str) -> State:
    state = _optimized(kind)
    state.folder = tempfile.TemporaryDirectory()
    state.path = Path(state.folder.name) / "model.ipex"
    ipex.aot_save(state.module, state.path, example_inputs=state.x)
    return state


def _save(module: torch.jit.ScriptModule) -> bytes:
    file = io.BytesIO()
    torch.jit.save(module, file)
    return file.getvalue()


def _aot_save(state: State) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    try:
        ipex.aot_save(state.module, Path(folder.name) / "model.ipex", example_inputs=state.x)
    except BaseException:
        if left := os.listdir(folder.name):
            raise AssertionError(f"left {left}") from None
        raise
    return folder


def _in_pool(state: State) -> Any:
    with ipex.StreamPool(state.module, streams=1, threads_per_stream=1, pin=False) as pool:
        return pool(state.x)


def _with_allocator(state: State) -> Any:
    with ipex.use_allocator():
        return state.module(state.x)


def _calibrated(kind: str) -> State:
    state = _plain(kind)
    state.prepared = ipex.quantization.prepare(state.model, state.x, ipex.quantization.Recipe(forced=True))
    return state


def _observe(state: State) -> Any:
    return state.prepared(state.x)


def _trained(name: str) -> State:
    """A model with gradients, and its prepared optimizer after a step. A value is its weights after one more."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 4)).train()
    model, optimizer = ipex.optimize(model, optimizer=OPTIMIZERS[name](model.parameters()))
    x = torch.randn(5, 20)
    with torch.enable_grad():
        model(x).square().sum().backward()
    optimizer.step()
    return State(model=model, optimizer=optimizer, x=x, tensors=[x, *(p.grad for p in model.parameters())])


def _modules(kind: str, **options: Any) -> Action:
    low = options.get("dtype")

    def value(state: State, model: nn.Module) -> Any:
        with torch.autocast("cpu", dtype=low, enabled=low is not None):
            return model(state.x)

    return Action(lambda: _plain(kind), lambda s: ipex.optimize(s.model, **options), value, 5e-2 if low else 1e-4)


def _of_kinds() -> Iterator[tuple[str, Action]]:
    for kind in KINDS:
        near = _tolerance(kind)
        of_two = lambda s: s.module(torch.cat([s.x, s.x]))  # noqa: E731

        def first(kind: str = kind) -> State:
            return _optimized(kind)

        def later(kind: str = kind) -> State:
            return _optimized(kind, calls=3)

        yield (
            f"jit_optimize: {kind}",
            Action(
                lambda kind=kind: _plain(kind),
                lambda s, kind=kind: KINDS[kind].optimize(s.model, s.x),
                lambda s, m: m(s.x),
                near,
            ),
        )
        yield (
            f"jit_optimize a trace: {kind}",
            Action(lambda kind=kind: _traced(kind), lambda s: ipex.jit_optimize(s.script), lambda s, m: m(s.x), near),
        )
        yield f"first call: {kind}", Action(first, lambda s: s.module(s.x), tolerance=near)
        yield (
            f"second call: {kind}",
            Action(lambda kind=kind: _optimized(kind, 1), lambda s: s.module(s.x), tolerance=near),
        )
        yield f"later call: {kind}", Action(later, lambda s: s.module(s.x), tolerance=near, is_repeated=True)
        yield f"another shape: {kind}", Action(later, of_two, tolerance=near, is_repeated=True)
        yield f"in a pool: {kind}", Action(first, _in_pool, tolerance=near)
        yield f"use_allocator: {kind}", Action(later, _with_allocator, tolerance=near, is_repeated=True)
        yield (
            f"save: {kind}",
            Action(first, lambda s: _save(s.module), lambda s, saved: torch.jit.load(io.BytesIO(saved))(s.x), near),
        )
        yield (
            f"save after calls: {kind}",
            Action(later, lambda s: _save(s.module), lambda s, saved: torch.jit.load(io.BytesIO(saved))(s.x), near),
        )
        yield (
            f"load: {kind}",
            Action(
                lambda kind=kind: _saved(kind),
                lambda s: torch.jit.load(io.BytesIO(s.bytes)),
                lambda s, m: m(s.x),
                near,
            ),
        )
        yield f"deepcopy: {kind}", Action(later, lambda s: copy.deepcopy(s.module), lambda s, m: m(s.x), near)
        yield (
            f"aot_save: {kind}",
            Action(first, _aot_save, lambda s, folder: ipex.aot_load(Path(folder.name) / "model.ipex")(s.x), near),
        )
        yield (
            f"aot_load: {kind}",
            Action(lambda kind=kind: _in_a_file(kind), lambda s: ipex.aot_load(s.path), lambda s, m: m(s.x), near),
        )


def _all() -> Iterator[tuple[str, Action]]:
    yield from _of_kinds()
    for kind in ("linear", "convolution and batch_norm", "lstm", "attention", "depthwise convolution"):
        yield f"optimize: {kind}", _modules(kind)
        yield f"optimize in bfloat16: {kind}", _modules(kind, dtype=torch.bfloat16, sample_input=KINDS[kind].x())
        yield f"optimize as a graph: {kind}", _modules(kind, graph_mode=True, sample_input=KINDS[kind].x())
    for kind in ("static int8", "static int8 convolution", "attention"):
        yield (
            f"prepare: {kind}",
            Action(
                lambda kind=kind: _plain(kind),
                lambda s: ipex.quantization.prepare(s.model, s.x, ipex.quantization.Recipe(forced=True)),
                lambda s, prepared: prepared(s.x),
            ),
        )
        yield f"observe: {kind}", Action(lambda kind=kind: _calibrated(kind), _observe, is_repeated=True)
    for name in OPTIMIZERS:
        yield (
            f"step: {name}",
            Action(
                lambda name=name: _trained(name),
                lambda s: s.optimizer.step(),
                lambda s, _: [p.detach().clone() for p in s.model.parameters()],
                may_be_half_done=True,
                is_repeated=True,
            ),
        )


ACTIONS: dict[str, Action] = dict(_all())


def flat(value: Any) -> list[Tensor]:
    """The tensors of a result."""
    if isinstance(value, Tensor):
        return [value.detach().float().clone()]
    return [tensor for part in value for tensor in flat(part)]


def are_close(found: list[Tensor], expected: list[Tensor], tolerance: float) -> bool:
    return len(found) == len(expected) and all(
        f.shape == e.shape and torch.allclose(f, e, rtol=0, atol=tolerance * max(float(e.abs().max()), 1e-3))
        for f, e in zip(found, expected)
    )


def warm_python() -> None:
    """Import what torch imports when it traces first, so that forks need not. Nothing of ipex runs."""
    quietly()
    torch.jit.trace(nn.Linear(1, 1).eval(), torch.zeros(1, 1))
    gc.collect()
    gc.freeze()  # then each of the many collections has little to look at


def quietly() -> None:
    """No warnings, no gradients, one thread: the same allocations each time."""
    warnings.simplefilter("ignore")
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
