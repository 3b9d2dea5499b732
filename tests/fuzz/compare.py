"""Is the result of an optimised module as right as eager's?

Dtype, shape, strides (but of an empty tensor: eager's convolutions give it odd ones), shared memory, errors, and where
NaN and the infinities are must be eager's. Values must be as accurate as eager's, which is measured and not guessed:
the same model is evaluated in float64, and a few times with inputs and weights disturbed by about one rounding error,
once with denormal numbers taken for zero. What eager itself is off by then (`noise`) is what nobody can demand; the
result may be off by FACTOR times as much, plus FLOOR for sums of few terms in which eager was lucky. A value is looked
at twice, as it is (errors relative to the largest element) and through asinh (errors relative to each element, so that
a large one does not hide the others). An element in which the disturbance turns a number into NaN or an infinity, or
back, is not compared; neither is where gradients are NaN, for eager's backward kernels do not agree among themselves
on what becomes of a NaN. Nor is one that depends on the sign of a zero, or on how near to zero a divisor comes; nor
what overflows, a number in float64: the order of a sum decides between infinity and NaN. Where what
is allowed is more than the largest element, no digit of it means anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from fuzz.outcome import Outcome

FACTOR = 8.0
# Relative to the largest element: 16 roundings of a float32, 2 of the narrow types.
FLOOR = {torch.float32: 2e-6, torch.float64: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}


class Noise(Protocol):
    """What eager itself is not sure of, in one call. Tensors go by their names."""

    def disturbed(self, name: str) -> list[Tensor]:
        """The tensor in evaluations that are as right as eager's."""

    def decides_errors(self) -> bool:
        """Whether some of these raise and some do not: a branch hangs on rounding, and an op in it raises."""

    def allowed(self, dtype: torch.dtype) -> tuple[float, float]:
        """FACTOR and FLOOR for results of this dtype, or what stands in for them."""

    def exact(self, name: str) -> Tensor | None:
        """The tensor in float64; None where that fails."""

    def with_other_zeros(self, name: str) -> list[Tensor]:
        """The tensor in evaluations in which zeros have the other sign, or are nearly zeros."""

    def layout_is_open(self) -> bool:
        """Whether the layout of results hangs on strides that lead nowhere."""


def difference(actual: Outcome, expected: Outcome, noise: Noise) -> tuple[str, str] | None:
    """A kind and a description of the first difference."""
    if (actual.error is None) != (expected.error is None):
        kind = "does not raise" if actual.error is None else f"raises, {essence(actual.error)}"
        return kind, f"eager: {_short(expected.error)}; optimised: {_short(actual.error)}"
    if actual.error is not None:  # which ops ran before it is open, and so is the state
        return None
    if actual.structure != expected.structure:
        return "structure", f"{actual.structure}, eager {expected.structure}"
    if actual.gradient_error is not None and expected.gradient_error is None:
        return "gradient raises", _short(actual.gradient_error)
    for (name, a), (other_name, e) in zip(actual.tensors, expected.tensors):
        if name != other_name:
            return "gradient", f"{name} where eager has {other_name}"
        kind = name.split()[0]
        if kind == "gradient" and e.dim() == 0 and a.dim() > 0:
            continue  # eager's of a list of which one tensor is not read is a number
        for what in ("dtype", "shape", "requires_grad"):
            if getattr(a, what) != getattr(e, what):
                return f"{kind} {what}", f"{name}: {what} {getattr(a, what)}, eager {getattr(e, what)}"
        # The stride of a dimension of length 1 leads nowhere, and aten's ops disagree about it among themselves:
        # docs/decisions/layout.md
        longer = [i for i, length in enumerate(e.shape) if length > 1]
        differ = kind != "gradient" and e.numel() and any(a.stride(i) != e.stride(i) for i in longer)
        if differ and not noise.layout_is_open():
            return f"{kind} strides", f"{name}: strides {a.stride()}, eager {e.stride()}, shape {tuple(e.shape)}"
        found = _values(a.detach(), e.detach(), noise, name)
        if found is not None:
            return f"{kind} {found[0]}", f"{name}: {found[1]}"
    # Eager refuses gradients where something was overwritten that an op in place of another may not need.
    if len(actual.tensors) != len(expected.tensors) and expected.gradient_error is None:
        return "gradient", f"{len(actual.tensors)} tensors, eager {len(expected.tensors)}"
    if actual.shared != expected.shared:
        return "aliasing", f"in common memory: {actual.shared}, eager {expected.shared}"
    return _states(actual, expected, noise)


def _states(actual: Outcome, expected: Outcome, noise: Noise) -> tuple[str, str] | None:
    """The first difference in attributes that both still have."""
    theirs = dict(expected.states)
    for name, a in actual.states:
        e = theirs.get(name, a)
        for what in ("dtype", "shape"):
            if getattr(a, what) != getattr(e, what):
                return f"state {what}", f"{name}: {what} {getattr(a, what)}, eager {getattr(e, what)}"
        found = _values(a, e, noise, name)
        if found is not None:
            return f"state {found[0]}", f"{name}: {found[1]}"
    return None


def essence(error: str) -> str:
    """The last line without its numbers: tells bugs apart."""
    return re.sub(r"[^A-Za-z_:' ]+", "", error.strip().splitlines()[-1])[:50].strip()


def _short(error: str | None) -> str:
    return "no error" if error is None else error.strip().splitlines()[-1][:300]


def _classes(values: Tensor) -> Tensor:
    return values.isnan() + 2 * values.isposinf() + 4 * values.isneginf()


def _settled(e: Tensor, others: list[Tensor], of: Callable[[Tensor], Tensor]) -> Tensor:
    """Where all evaluations agree on this property of an element."""
    settled = torch.ones_like(e, dtype=torch.bool)
    for other in others:
        if other.shape == e.shape:
            settled &= of(other) == of(e)
    return settled


def _means_nothing(e: Tensor, others: list[Tensor]) -> Tensor:
    """Where no digit of an element is sure: rounding moves it by its own size, as where small differences divide."""
    found = torch.zeros_like(e, dtype=torch.bool)
    finite = e.nan_to_num(0, 0, 0)
    largest = finite.abs().max() if e.numel() else 0.0
    for other in (o.double().nan_to_num(0, 0, 0) for o in others if o.shape == e.shape):
        off = (other - finite).abs()
        found |= (off > torch.maximum(other.abs(), finite.abs()) / 2) & (off > 1e-3 * largest)
    return found


def _is_all_noise(e: Tensor, others: list[Tensor], factor: float) -> bool:
    """Whether more than the largest element is allowed."""
    finite = e[e.isfinite()]
    off = [(o.double() - e)[o.isfinite() & e.isfinite()] for o in others if o.shape == e.shape]
    largest = max((x.abs().max() for x in off if x.numel()), default=0.0)
    return bool(finite.numel()) and factor * largest > finite.abs().max()


def _values(a: Tensor, e: Tensor, noise: Noise, name: str) -> tuple[str, str] | None:
    if torch.equal(a, e):
        return None
    if not e.dtype.is_floating_point:
        settled = _settled(e, noise.disturbed(name), _same)
        off = (a.double() - e.double()).abs()[settled]
        if off.sum() <= 1 + e.numel() // 1000 and (not off.numel() or off.max() <= 1):
            return None  # numbers cut off a rounding error beside the next integer
        return "value", f"{a.flatten()[:8]}, eager {e.flatten()[:8]}"
    factor, floor = noise.allowed(e.dtype)
    a, e = a.double(), e.double()
    wrong = _classes(a) != _classes(e)
    if not name.startswith("gradient") and wrong.any():
        wrong &= _settled(e, [*noise.disturbed(name), *noise.with_other_zeros(name)], _classes)
        exact = noise.exact(name)
        if exact is not None and exact.shape == e.shape:
            # Eager's kernels read what they should not, neighbours' infinities among 16 bits, or don't read what they
            # should: rows of an image of one column.
            is_exact = _classes(a) == _classes(exact.double())
            wrong &= ~is_exact & (~exact.isfinite() | e.isfinite())
        if wrong.any():
            wrong &= ~_means_nothing(e, noise.disturbed(name))
        if wrong.any() and not _is_all_noise(e, noise.disturbed(name), factor):
            where = wrong.nonzero()[0].tolist()
            index = tuple(where)
            return "nan or inf", f"at {where}: {a[index].item()}, eager {e[index].item()}"
    compared = e.isfinite() & a.isfinite()
    if not compared.any():
        return None
    for scaled, kind in ((_same, "value"), (torch.asinh, "value of a small element")):
        x, y = scaled(a[compared]), scaled(e[compared])
        scale = y.abs().max().item() + (1e-30 if kind == "value" else 1e-3)
        if (x - y).abs().max().item() <= floor * scale:
            continue
        disturbed, exact = noise.disturbed(name), noise.exact(name)
        if noise.decides_errors():
            return None
        settled = _settled(e, disturbed, _classes)[compared]
        own = 0.0
        for other in [*disturbed, *([] if exact is None else [exact])]:
            if other.shape == compared.shape:
                z = scaled(other.double()[compared])
                off = (z - y)[z.isfinite() & settled]
                own = max(own, off.abs().max().item() if off.numel() else 0.0)
        if factor * own > scale:
            continue
        truth = y
        if exact is not None and exact.shape == compared.shape:
            z = scaled(exact.double()[compared])
            truth = torch.where(z.isfinite(), z, y)
        error, allowed = ((x - truth).abs() * settled).max().item(), factor * own + floor * scale
        if error > allowed:
            return kind, f"off by {error:.3g}, allowed {allowed:.3g} (eager is off by {own:.3g}; largest {scale:.3g})"
    return None


def _same(values: Tensor) -> Tensor:
    return values
