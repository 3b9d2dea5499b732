"""Lars, in torch's ops. `ipex.optimize` replaces them by a fused step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from .by_group import ByGroup


class Lars(ByGroup):
    """SGD with a learning rate per parameter, scaled to the norm of the weight (You et al. 2017, arXiv 1708.03888).

        trust = trust_coefficient * |weight| / (|gradient| + weight_decay * |weight| + eps)

    SGD then takes trust * (gradient + weight_decay * weight) for its gradient. Trust is 1 where either norm is 0.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        trust_coefficient: float = 1e-3,
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if not (lr >= 0 and momentum >= 0 and weight_decay >= 0 and eps >= 0 and trust_coefficient > 0):
            raise ValueError(
                "ipex.optim.Lars: expected lr, momentum, weight_decay and eps of at least 0 and a positive "
                f"trust_coefficient, got {lr}, {momentum}, {weight_decay}, {eps} and {trust_coefficient}."
            )
        if nesterov and (momentum == 0 or dampening != 0):
            raise ValueError(
                "ipex.optim.Lars: expected momentum and no dampening with nesterov, "
                f"got momentum={momentum}, dampening={dampening}."
            )
        defaults = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        own = {"nesterov": nesterov, "trust_coefficient": trust_coefficient, "eps": eps, "maximize": maximize}
        super().__init__(params, {**defaults, **own, "differentiable": False})

    def update(self, weights: list[Any], group: dict[str, Any]) -> None:
        """Update weights and their states in place."""
        lars(weights, [p.grad for p in weights], [self.state[p] for p in weights], group)


def lars(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], states: Sequence[dict[str, Any]], group: dict[str, Any]
) -> None:
    """Update weights and states in place, with the options of a group."""
    momentum, weight_decay = group["momentum"], group["weight_decay"]
    for weight, gradient, state in zip(weights, gradients, states):
        if gradient.is_sparse:
            raise RuntimeError("ipex.optim.Lars: expected dense gradients, got a sparse one.")
        weight_norm, gradient_norm = weight.norm().item(), gradient.norm().item()
        trust = 1.0
        if weight_norm != 0 and gradient_norm != 0:
            denominator = gradient_norm + weight_decay * weight_norm + group["eps"]
            trust = group["trust_coefficient"] * weight_norm / denominator
        if group["maximize"]:
            gradient = -gradient
        update = gradient.add(weight, alpha=weight_decay).mul_(trust)
        if momentum != 0:
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = update.clone()
            else:
                buffer.mul_(momentum).add_(update, alpha=1 - group["dampening"])
            update = update.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        weight.add_(update, alpha=-float(group["lr"]))
