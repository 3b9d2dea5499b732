"""Whether a model's results can be compared at all.

Random weights can make a network chaotic: what one rounding changes grows from layer to layer, and two right answers
have nothing in common. With such weights no mistake would be seen.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ipex.bench.reference import largest_difference

CHANGE = 1e-6  # of every weight, relative
MOST = 1e-3  # that it may change of the results, relative


def why_unsteady(model: nn.Module, inputs: tuple[Tensor, ...]) -> str | None:
    """Return why the results of a model are of no use, or None."""
    first, second = model(*copy.deepcopy(inputs)), model(*copy.deepcopy(inputs))
    if not first:
        return "returns no tensor"
    if not all(x.isfinite().all() for x in first):
        return "overflows"
    if not all(map(torch.equal, first, second)):
        return "gives other results in each call"
    difference = largest_difference(list(_changed(model)(*copy.deepcopy(inputs))), list(first))
    if difference > MOST:
        return f"chaotic: weights changed by {CHANGE:.0e} change its results by {difference:.0e}"
    return None


def _changed(model: nn.Module) -> nn.Module:
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in changed.parameters():
            if parameter.is_floating_point():
                parameter.mul_(1 + CHANGE * torch.randn_like(parameter))
    return changed
