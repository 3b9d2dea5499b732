"""One call of a module, and everything about it that a caller could tell."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fuzz.strategies import Call
from fuzz.tensors import TensorSpec, make


class Outcome(NamedTuple):
    """What came out, or the error."""

    error: str | None
    structure: str = ""
    tensors: tuple[tuple[str, Tensor], ...] = ()  # by name: results, inputs after the call, gradients
    shared: tuple[tuple[str, str], ...] = ()  # which of them have memory in common
    gradient_error: str | None = None


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


def run(module: Callable[..., Any], call: Call, change: Change | None = None) -> Outcome:
    with settings(call):
        bases, inputs = arguments(call, change)
        try:
            result = module(*inputs)
        except Exception as error:
            return Outcome(f"{type(error).__name__}: {error}")
        results, gradients, gradient_error = flatten(result), [], None
        if call.mode == "grad":
            try:
                gradients = _gradients(results, bases)
            except Exception as error:
                gradient_error = f"{type(error).__name__}: {error}"
    named = [(f"result {i}", t) for i, t in enumerate(results)] + [(f"input {i}", t) for i, t in enumerate(bases)]
    shared = tuple(
        (named[i][0], named[j][0])
        for i in range(len(results))
        for j in range(i + 1, len(named))
        if named[i][1].numel() and named[j][1].numel() and _memory(named[i][1]) == _memory(named[j][1])
    )
    return Outcome(None, structure(result), (*named, *gradients), shared, gradient_error)


def flatten(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [t for part in result for t in flatten(part)]


def structure(result: Any) -> str:
    return "T" if isinstance(result, Tensor) else f"({', '.join(structure(part) for part in result)})"


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _gradients(results: list[Tensor], bases: list[Tensor]) -> list[tuple[str, Tensor]]:
    wanted = [(i, base) for i, base in enumerate(bases) if base.requires_grad]
    roots = [(r.nan_to_num(0, 0, 0) * r.new_full((), 0.37)).sum() for r in results if r.requires_grad]
    if not wanted or not roots:
        return []
    found = torch.autograd.grad(roots, [base for _, base in wanted], allow_unused=True)
    return [(f"gradient {i}", torch.zeros(()) if g is None else g) for (i, _), g in zip(wanted, found)]
