"""Whether a model's results can be compared at all.

Random weights can make a network chaotic: what one rounding changes grows from layer to layer, and two right answers
have nothing in common. With such weights no mistake would be seen.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ipex.bench.reference import largest_difference

CHANGE = 1e-6  # of every number, relative
DRAWS = 3  # of weights, and as many of inputs: some changes are lost on the way
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
    for _ in range(DRAWS):
        results = {
            "weights": with_changed_weights(model, CHANGE)(*copy.deepcopy(inputs)),
            "inputs": model(*(_changed(x, CHANGE) for x in inputs)),
        }
        for what, result in results.items():
            difference = largest_difference(list(result), list(first))
            if difference > MOST:
                return f"chaotic: {what} changed by {CHANGE:.0e} change its results by {difference:.0e}"
    return None


def with_changed_weights(model: nn.Module, by: float) -> nn.Module:
    """Return a copy in which every number is another one, by about so much relative to it."""
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.copy_(_changed(parameter, by))
    return changed


def _changed(tensor: Tensor, by: float) -> Tensor:
    return tensor * (1 + by * torch.randn_like(tensor)) if tensor.is_floating_point() else tensor.clone()
