"""Lamb, in torch's ops. `ipex.optimize` replaces them by a fused step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from .by_group import ByGroup


class Lamb(ByGroup):
    """Adam's update, scaled per parameter to the norm of the weight (You et al. 2020, arXiv 1904.00962).

        update = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * weight
        weight -= lr * |weight| / |update| * update

    The quotient of the norms is 1 where either is 0.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ) -> None:
        if not (lr >= 0 and eps >= 0 and weight_decay >= 0 and all(0 <= beta < 1 for beta in betas)):
            raise ValueError(
                "ipex.optim.Lamb: expected lr, eps and weight_decay of at least 0 and betas in [0, 1), "
                f"got {lr}, {eps}, {weight_decay} and {betas}."
            )
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**defaults, "differentiable": False})

    def update(self, weights: list[Any], group: dict[str, Any]) -> None:
        """Update weights and their states in place."""
        for p in weights:
            if not self.state[p]:
                self.state[p] = new_state(p)
        lamb(weights, [p.grad for p in weights], [self.state[p] for p in weights], group)


def new_state(weight: Tensor, **like: Any) -> dict[str, Tensor]:
    """Return what is kept of a parameter before its first update."""
    return {
        "step": torch.tensor(0.0),
        "exp_avg": torch.zeros_like(weight, **like),
        "exp_avg_sq": torch.zeros_like(weight, **like),
    }


def lamb(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], states: Sequence[dict[str, Any]], group: dict[str, Any]
) -> None:
    """Update weights and states in place, with the options of a group."""
    beta1, beta2 = group["betas"]
    for weight, gradient, state in zip(weights, gradients, states):
        if gradient.is_sparse:
            raise RuntimeError("ipex.optim.Lamb: expected dense gradients, got a sparse one.")
        if group["maximize"]:
            gradient = -gradient
        state["step"] += 1
        first, second, step = state["exp_avg"], state["exp_avg_sq"], state["step"].item()
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        denominator = (second.sqrt() / (1 - beta2**step) ** 0.5).add_(group["eps"])
        update = (first / (1 - beta1**step)).div_(denominator).add_(weight, alpha=group["weight_decay"])
        weight_norm, update_norm = weight.norm().item(), update.norm().item()
        trust_ratio = weight_norm / update_norm if weight_norm != 0 and update_norm != 0 else 1.0
        weight.add_(update, alpha=-float(group["lr"]) * trust_ratio)
