"""Weights with which a layer that is computed wrongly shows in the result."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ipex.bench.models.weights import enliven

ZEROS = 1 / 16  # of the channels of a batch_norm
TINY = 0.01
CALM = 0.5  # scale of batch_norms with which a deep residual network does not grow its signal


def draw(model: nn.Module) -> None:
    """Draw the weights anew: the signal keeps its size, batch_norm has zeros, and no branch is scaled away."""
    enliven(model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and parameter.dim() < 2 and _is_constant_and_tiny(parameter):
                nn.init.uniform_(parameter, 0.5, 1.0)  # the scale of a branch, born as 0 or 1e-6
        draw_batch_norms(model)


def draw_batch_norms(model: nn.Module, scale: float = 1.0) -> None:
    """Draw statistics, and scales around `scale`, with channels of scale 0, of mean 0 and of variance 0.

    A variance of 0 makes a channel 300 times as large. In trained models it stands where the scale is 0 too.
    """
    for module in model.modules():
        variance, mean = getattr(module, "running_var", None), getattr(module, "running_mean", None)
        if not isinstance(variance, Tensor) or not isinstance(mean, Tensor):
            continue
        nn.init.uniform_(variance, 0.5, 1.5)
        nn.init.uniform_(mean, -0.2, 0.2)
        mean[torch.rand_like(mean) < ZEROS] = 0
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor):
            nn.init.uniform_(weight, 0.8 * scale, 1.2 * scale)
            dead = torch.rand_like(weight) < ZEROS
            dead[torch.randint(len(dead), ())] = True
            weight[dead] = 0
            variance[dead & (torch.rand_like(weight) < 0.5)] = 0


def _is_constant_and_tiny(parameter: Tensor) -> bool:
    return bool((parameter == parameter.flatten()[0]).all()) and abs(parameter.flatten()[0].item()) < TINY
