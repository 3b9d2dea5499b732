"""One call of a module, and everything about it that a caller could tell."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from fuzz.strategies import Call
from fuzz.tensors import TensorSpec, make


class Outcome(NamedTuple):
    """What came out, or the error."""

    error: str | None
    structure: str = ""
    tensors: tuple[tuple[str, Tensor], ...] = ()  # by name: results, inputs after the call, gradients
    shared: tuple[tuple[str, str], ...] = ()  # which of them have memory in common
    gradient_error: str | None = None
    states: tuple[tuple[str, Tensor], ...] = ()  # attributes that the model writes, after the call


Change = Callable[[Tensor], Tensor]


@contextlib.contextmanager
def settings(call: Call) -> Iterator[None]:
    torch.set_num_threads(call.threads)
    modes = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "grad": torch.enable_grad}
    # The tracer can't follow casts that autocast keeps.
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=call.mode == "autocast", cache_enabled=False)
    try:
        with modes.get(call.mode, torch.no_grad)(), autocast:
            yield
    finally:
        torch.set_num_threads(1)


def arguments(call: Call, change: Change | None = None) -> tuple[list[Tensor], list[Tensor]]:
    """The bases and the arguments of a call. `change` is made to every base."""
    bases: list[Tensor] = []
    made: list[Tensor] = []
    for spec in call.arguments:
        if not isinstance(spec, TensorSpec):
            made.append(made[spec])
            continue
        base, view = make(spec)
        whole = view is base
        if change is not None:
            base = change(base)
        if call.mode == "grad" and base.is_floating_point():
            base.requires_grad_()
        bases.append(base)
        made.append(base if whole else base.as_strided(view.size(), view.stride(), view.storage_offset()))
    return bases, made


def run(
    module: Callable[..., Any], call: Call, change: Change | None = None, attributes: Sequence[str] = ()
) -> Outcome:
    """One call. `attributes` names what the model may write, where the module has it still: freezing drops what nobody
    can change."""
    with settings(call):
        bases, inputs = arguments(call, change)
        try:
            result = (module if call.method == "forward" else getattr(module, call.method))(*inputs)
        except Exception as error:
            return Outcome(f"{type(error).__name__}: {error}", states=_states(module, attributes))
        results, gradients, gradient_error = flatten(result), [], None
        if call.mode == "grad":
            try:
                gradients = _gradients(results, bases)
            except Exception as error:
                gradient_error = f"{type(error).__name__}: {error}"
    shared = _in_common([*_named("result", results), *_named("input", bases)], len(results))
    written = [r for r in results if call.overwrites and r.is_floating_point()]
    if written or attributes:  # before the caller does, or the next call, in copies that lie as they do
        results, bases = [_snapshot(r) for r in results], [_snapshot(b) for b in bases]
    found = _states(module, attributes)
    with settings(call), _disable_current_modes():
        for tensor in written:
            # Memory in which several elements are one, nobody writes.
            with contextlib.suppress(RuntimeError):
                tensor.add_(1)
    named = [*_named("result", results), *_named("input", bases), *gradients]
    return Outcome(None, structure(result), tuple(named), shared, gradient_error, found)


def _states(module: Any, attributes: Sequence[str]) -> tuple[tuple[str, Tensor], ...]:
    return tuple((f"state {name}", _snapshot(getattr(module, name))) for name in attributes if hasattr(module, name))


def _in_common(named: list[tuple[str, Tensor]], results: int) -> tuple[tuple[str, str], ...]:
    """The results among them that lie in memory of another one."""
    return tuple(
        (named[i][0], named[j][0])
        for i in range(results)
        for j in range(i + 1, len(named))
        if named[i][1].numel() and named[j][1].numel() and _memory(named[i][1]) == _memory(named[j][1])
    )


def _named(kind: str, tensors: list[Tensor]) -> list[tuple[str, Tensor]]:
    return [(f"{kind} {i}", tensor) for i, tensor in enumerate(tensors)]


def _snapshot(tensor: Tensor) -> Tensor:
    if tensor.layout != torch.strided or tensor.is_quantized:
        return tensor
    with torch.no_grad(), _disable_current_modes():
        copy = tensor.detach().new_empty(0)
        storage = tensor.untyped_storage().clone()
        copy.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())  # type: ignore[call-overload]
        return copy.requires_grad_(tensor.requires_grad)


def flatten(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [t for part in (result.values() if isinstance(result, dict) else result) for t in flatten(part)]


def structure(result: Any) -> str:
    if isinstance(result, Tensor):
        return "T"
    if isinstance(result, dict):
        return f"{{{', '.join(f'{key}: {structure(part)}' for key, part in result.items())}}}"
    parts = ", ".join(structure(part) for part in result)
    return f"[{parts}]" if isinstance(result, list) else f"({parts})"


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _gradients(results: list[Tensor], bases: list[Tensor]) -> list[tuple[str, Tensor]]:
    wanted = [(i, base) for i, base in enumerate(bases) if base.requires_grad]
    roots = [(r.nan_to_num(0, 0, 0) * r.new_full((), 0.37)).sum() for r in results if r.requires_grad]
    if not wanted or not roots:
        return []
    found = torch.autograd.grad(roots, [base for _, base in wanted], allow_unused=True)
    return [(f"gradient {i}", torch.zeros(()) if g is None else g) for (i, _), g in zip(wanted, found)]
