"""Whether a model gives what eager gives: values, dtypes, shapes and strides; and leaves its inputs alone."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from ipex.bench.reference import largest_difference

from .steadiness import with_changed_weights

# Relative to the largest element of a result, as in tests/support.py.
TOLERANCE = 1e-5
# Errors of many layers add up, eager's as much as ours. Where the difference is larger than TOLERANCE, both are held
# against float64, as in tests/models/test_zoo.py: ours may be this many times as far off as eager. A result of
# one number may be next to right in eager by chance, so eager is asked again with weights that are a rounding off.
# Where float64 can't be had, it is what these evaluations differ by that counts.
TIMES_EAGERS_ERROR = 4
DRAWS = 3
ROUNDING = torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class Verdict:
    """`status` is ok, or what is wrong first of all. Errors are relative to the largest element of the result."""

    status: str
    difference: float
    error: float | None = None
    eagers_error: float | None = None


class Reference:
    """What eager makes of the inputs and, if somebody has to know, what is true."""

    def __init__(self, model: nn.Module, inputs: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
        self.model, self.inputs, self.expected = model, inputs, list(expected)

    @cached_property
    def truth(self) -> list[Tensor]:
        """The results in float64, which takes long; eager's for a model that does not run in it."""
        try:
            model = copy.deepcopy(self.model).double()
            return list(model(*(x.double() if x.is_floating_point() else x.clone() for x in self.inputs)))
        except (RuntimeError, TypeError, ValueError):
            return self.expected

    @cached_property
    def eagers_error(self) -> float:
        """The largest of a few evaluations in the model's own dtype."""
        results = [self.expected]
        for _ in range(DRAWS):
            results.append(list(with_changed_weights(self.model, ROUNDING)(*copy.deepcopy(self.inputs))))
        return max(largest_difference(result, self.truth) for result in results)

    def judge(self, actual: Sequence[Tensor]) -> Verdict:
        """Compare results with eager's and, where these differ by more than roundings, with the truth."""
        difference = largest_difference(list(actual), self.expected)
        wrong = _wrong_form(actual, self.expected)
        if wrong or difference <= TOLERANCE:
            return Verdict(wrong or "ok", difference)
        error = largest_difference(list(actual), self.truth)
        is_close = error <= TIMES_EAGERS_ERROR * self.eagers_error
        return Verdict("ok" if is_close else "wrong values", difference, error, self.eagers_error)


def _wrong_form(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> str | None:
    if [x.shape for x in actual] != [x.shape for x in expected]:
        return "wrong shapes"
    if [x.dtype for x in actual] != [x.dtype for x in expected]:
        return "wrong dtypes"
    if [x.stride() for x in actual] != [x.stride() for x in expected]:
        return "wrong strides"
    return None


def same_inputs(ours: tuple[Tensor, ...], before: tuple[Tensor, ...]) -> bool:
    """Whether a call left its inputs as they were."""
    return all(map(torch.equal, ours, before))
