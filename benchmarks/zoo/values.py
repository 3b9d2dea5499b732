"""Whether a model gives what eager gives: values, dtypes, shapes and strides; and leaves its inputs alone."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ipex.bench.reference import largest_difference

# Relative to the largest element of a result, as in tests/support.py.
TOLERANCE = 1e-5
# Errors of many layers add up, eager's as much as ours. Where the difference is larger than TOLERANCE, both are held
# against float64, as in tests/models/test_zoo.py: ours may be this many times as far off as eager.
TIMES_EAGERS_ERROR = 4


@dataclass(frozen=True)
class Verdict:
    """`status` is ok, or what is wrong first of all. Errors are relative to the largest element of the result."""

    status: str
    difference: float
    error: float | None = None
    eagers_error: float | None = None


def judge(
    actual: Sequence[Tensor], expected: Sequence[Tensor], model: nn.Module, inputs: tuple[Tensor, ...]
) -> Verdict:
    """Compare results with eager's and, where these differ by more than roundings, with float64's."""
    difference = largest_difference(list(actual), list(expected))
    wrong = _wrong_form(actual, expected)
    if wrong or difference <= TOLERANCE:
        return Verdict(wrong or "ok", difference)
    exact = _in_float64(model, inputs)
    if exact is None:
        return Verdict("wrong values", difference)
    error, eagers_error = (largest_difference(list(results), exact) for results in (actual, expected))
    is_close = error <= TIMES_EAGERS_ERROR * eagers_error
    return Verdict("ok" if is_close else "wrong values", difference, error, eagers_error)


def _wrong_form(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> str | None:
    if [x.shape for x in actual] != [x.shape for x in expected]:
        return "wrong shapes"
    if [x.dtype for x in actual] != [x.dtype for x in expected]:
        return "wrong dtypes"
    if [x.stride() for x in actual] != [x.stride() for x in expected]:
        return "wrong strides"
    return None


def _in_float64(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor] | None:
    """Return None for a model that does not run in float64."""
    try:
        exact = copy.deepcopy(model).double()
        return list(exact(*(x.double() if x.is_floating_point() else x.clone() for x in inputs)))
    except (RuntimeError, TypeError, ValueError):
        return None


def same_inputs(ours: tuple[Tensor, ...], before: tuple[Tensor, ...]) -> bool:
    """Whether a call left its inputs as they were."""
    return all(map(torch.equal, ours, before))
