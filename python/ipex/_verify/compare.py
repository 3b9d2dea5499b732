"""One result beside another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from .._structure import taken_apart

_SCALE = 1e-3  # beside results that are all but zero, a relative error says nothing


@dataclass(frozen=True)
class Compared:
    """A tensor of the original's results, and what the optimised model gave in its place.

    Errors are relative to the largest element, or to 0.001 where that is larger: `below_scale` says so.
    `signal_to_noise` is in decibels, infinite where the two are equal.
    """

    name: str
    agrees: bool
    error: float
    tolerance: float
    signal_to_noise: float
    note: str = ""
    below_scale: bool = False

    def __str__(self) -> str:
        if self.note:
            return f"{self.name}: {self.note}"
        relation = "at most" if self.agrees else "more than"
        scale = f"{_SCALE}, above all elements" if self.below_scale else "the largest element"
        return (
            f"{self.name}: largest error {self.error:.2g} of {scale} ({relation} {self.tolerance:.2g}), "
            f"signal to noise {self.signal_to_noise:.0f} dB"
        )


def compare(name: str, expected: Tensor, actual: Tensor, tolerance: float) -> Compared:
    """Compare two tensors: dtype, shape, NaN, infinity, and values to a tolerance."""
    for what, one, other in (("dtype", expected.dtype, actual.dtype), ("shape", expected.shape, actual.shape)):
        if one != other:
            note = f"expected {what} {_text(one)}, got {_text(other)}"
            return Compared(name, False, math.inf, tolerance, -math.inf, note)
    if expected.numel() == 0 or torch.equal(expected, actual):
        return Compared(name, True, 0.0, tolerance, math.inf)
    if not (expected.is_floating_point() or expected.is_complex()):
        count = int((expected != actual).sum())
        return Compared(name, False, math.inf, 0.0, -math.inf, f"{count} of {expected.numel()} elements differ")
    wide = torch.complex128 if expected.is_complex() else torch.float64
    expected, actual = expected.detach().to(wide), actual.detach().to(wide)
    finite = torch.isfinite(expected)
    if not torch.equal(finite, torch.isfinite(actual)) or not _same_where(~finite, expected, actual):
        return Compared(name, False, math.inf, tolerance, -math.inf, "NaN or infinity stands in other places")
    signal, noise = expected[finite], actual[finite] - expected[finite]
    if signal.numel() == 0:
        return Compared(name, True, 0.0, tolerance, math.inf)
    largest = signal.abs().max().item()
    error = noise.abs().max().item() / max(largest, _SCALE)
    power = noise.abs().square().sum().item()
    ratio = 10 * math.log10(max(signal.abs().square().sum().item(), 1e-300) / power) if power else math.inf
    return Compared(name, error <= tolerance, error, tolerance, ratio, below_scale=largest < _SCALE)


def compare_all(expected: Any, actual: Any, tolerance: Any) -> list[Compared]:
    """Compare structures of results, tensor by tensor. `tolerance` is asked for each dtype."""
    same = expected if type(expected) is type(actual) else _as_traced(expected)
    wanted, given = _leaves(expected), _leaves(actual)
    if type(same) is not type(actual) or _leaves(same).keys() != given.keys():
        note = f"expected {_form(expected, wanted)}, got {_form(actual, given)}"
        return [Compared("result", False, math.inf, 0.0, -math.inf, note)]
    return [_compare_one(name, value, other, tolerance) for (name, value), other in zip(wanted.items(), given.values())]


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Go through the tensors of any structure."""
    yield from (value for value in _leaves(values).values() if isinstance(value, Tensor))


def _compare_one(name: str, expected: Any, actual: Any, tolerance: Any) -> Compared:
    if isinstance(expected, Tensor) and isinstance(actual, Tensor):
        return compare(name, expected, actual, tolerance(expected.dtype))
    if isinstance(expected, Tensor) or isinstance(actual, Tensor):
        note = "one of the two is no tensor"
    elif expected == actual:
        return Compared(name, True, 0.0, 0.0, math.inf, "equal")
    else:
        note = f"expected {expected!r}, got {actual!r}"
    return Compared(name, False, math.inf, 0.0, -math.inf, note)


def _same_where(mask: Tensor, expected: Tensor, actual: Tensor) -> bool:
    return torch.equal(torch.nan_to_num(expected[mask]), torch.nan_to_num(actual[mask])) and torch.equal(
        expected[mask].isnan(), actual[mask].isnan()
    )


def _leaves(values: Any) -> dict[str, Any]:
    """Return tensors and constants by their places."""
    found: list[Tensor] = []
    try:
        structure = taken_apart(values, found)
    except TypeError:
        return {"result": values}  # of a kind that is not known
    tensors = iter(found)
    return {place: leaf.of(tensors) for place, leaf in structure.leaves("result")}


def _as_traced(value: Any) -> Any:
    """Return what a trace has in place of NamedTuples and dataclasses: tuples and dictionaries."""
    if is_dataclass(value) and not isinstance(value, (type, Mapping)):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple):
        return tuple(_as_traced(one) for one in value)
    return {name: _as_traced(one) for name, one in value.items()} if type(value) is dict else value


def _form(value: Any, leaves: dict[str, Any]) -> str:
    try:
        taken_apart(value, [])
    except TypeError as error:
        return f"a {error}, which can't be compared: leave it out by an argument, as use_cache=False does for caches"
    return f"{type(value).__name__} of {', '.join(leaves)}"


def _text(value: Any) -> str:
    return str(list(value)) if isinstance(value, torch.Size) else str(value)
