"""The optimizers that have a fused step: what each keeps, its options in the kernel's order, torch's way to update."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad as adagrad_by_torch
from torch.optim.adam import adam as adam_by_torch
from torch.optim.sgd import sgd as sgd_by_torch

from . import lamb, lars
from .prepared import Group, PreparedOptimizer, State


def counter() -> Tensor:
    """Return a step as torch's optimizers keep it."""
    return torch.tensor(0.0, dtype=torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32)


def in_lists(weights: list[Tensor], gradients: list[Tensor]) -> bool:
    """Return whether torch updates these by ops over lists: on a GPU a kernel per weight costs more than its work."""
    return not any(w.is_cpu or w.is_complex() or g.is_sparse for w, g in zip(weights, gradients))


class WithMomentum(PreparedOptimizer):
    """What keeps a buffer of momentum, and nothing else."""

    def _state_keys(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] != 0 else ()

    def _new_state(self, group: Group, parameter: Tensor, **like: Any) -> State:
        return {"momentum_buffer": torch.empty_like(parameter, **like)} if group["momentum"] != 0 else {}


class SGD(WithMomentum, torch.optim.SGD):
    """torch.optim.SGD, prepared."""

    _stock = torch.optim.SGD
    _kernel = "sgd"

    def _options(self, group: Group) -> list[float]:
        return [float(group[key]) for key in ("lr", "momentum", "dampening", "weight_decay", "nesterov")]

    def _update_by_torch(
        self, group: Group, weights: list[Tensor], gradients: list[Tensor], states: list[State]
    ) -> None:
        buffers = [state.get("momentum_buffer") for state in states]
        sgd_by_torch(
            weights,
            gradients,
            buffers,
            has_sparse_grad=any(gradient.is_sparse for gradient in gradients),
            foreach=in_lists(weights, gradients),
            fused=False,
            lr=float(group["lr"]),
            **{key: group[key] for key in ("momentum", "dampening", "weight_decay", "nesterov", "maximize")},
        )
        if group["momentum"] != 0:
            for state, buffer in zip(states, buffers):
                state["momentum_buffer"] = buffer


class Adagrad(PreparedOptimizer, torch.optim.Adagrad):
    """torch.optim.Adagrad, prepared."""

    _stock = torch.optim.Adagrad
    _kernel = "adagrad"

    def _state_keys(self, group: Group) -> tuple[str, ...]:
        return ("step", "sum")

    def _new_state(self, group: Group, parameter: Tensor, **like: Any) -> State:
        start = self.defaults["initial_accumulator_value"]
        start = complex(start, start) if parameter.is_complex() else start
        return {"step": counter(), "sum": torch.full_like(parameter, start, **like)}

    def _options(self, group: Group) -> list[float]:
        return [float(group[key]) for key in ("lr", "lr_decay", "weight_decay", "eps")]

    def _update_by_torch(
        self, group: Group, weights: list[Tensor], gradients: list[Tensor], states: list[State]
    ) -> None:
        adagrad_by_torch(
            weights,
            gradients,
            [state["sum"] for state in states],
            [state["step"] for state in states],
            has_sparse_grad=any(gradient.is_sparse for gradient in gradients),
            has_complex=any(weight.is_complex() for weight in weights),
            foreach=in_lists(weights, gradients),
            fused=False,
            lr=float(group["lr"]),
            **{key: group[key] for key in ("lr_decay", "weight_decay", "eps", "maximize")},
        )


class Adam(PreparedOptimizer, torch.optim.Adam):
    """torch.optim.Adam, prepared."""

    _stock: type[torch.optim.Optimizer] = torch.optim.Adam
    _kernel = "adam"

    def _state_keys(self, group: Group) -> tuple[str, ...]:
        largest = ("max_exp_avg_sq",) if group["amsgrad"] else ()
        return ("step", "exp_avg", "exp_avg_sq", *largest)

    def _new_state(self, group: Group, parameter: Tensor, **like: Any) -> State:
        moments = {key: torch.zeros_like(parameter, **like) for key in self._state_keys(group) if key != "step"}
        return {"step": counter(), **moments}

    def _options(self, group: Group) -> list[float]:
        beta1, beta2 = group["betas"]
        numbers = (group["lr"], beta1, beta2, group["eps"], group["weight_decay"])
        return [*map(float, (*numbers, group["decoupled_weight_decay"], group["amsgrad"]))]

    def _update_by_torch(
        self, group: Group, weights: list[Tensor], gradients: list[Tensor], states: list[State]
    ) -> None:
        if any(gradient.is_sparse for gradient in gradients):
            raise RuntimeError("Adam does not support sparse gradients, please consider SparseAdam instead")
        beta1, beta2 = group["betas"]
        adam_by_torch(
            weights,
            gradients,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [state["max_exp_avg_sq"] for state in states] if group["amsgrad"] else [],
            [state["step"] for state in states],
            has_complex=any(weight.is_complex() for weight in weights),
            foreach=in_lists(weights, gradients),
            fused=False,
            beta1=beta1,
            beta2=beta2,
            lr=float(group["lr"]),
            **{key: group[key] for key in ("eps", "weight_decay", "amsgrad", "maximize")},
            decoupled_weight_decay=group["decoupled_weight_decay"],
        )


class AdamW(Adam, torch.optim.AdamW):
    """torch.optim.AdamW, prepared."""

    _stock = torch.optim.AdamW


class Lamb(PreparedOptimizer, lamb.Lamb):
    """ipex.optim.Lamb, prepared."""

    _stock = lamb.Lamb
    _kernel = "lamb"

    def _state_keys(self, group: Group) -> tuple[str, ...]:
        return ("step", "exp_avg", "exp_avg_sq")

    def _new_state(self, group: Group, parameter: Tensor, **like: Any) -> State:
        return lamb.new_state(parameter, **like)

    def _options(self, group: Group) -> list[float]:
        return [*map(float, (group["lr"], *group["betas"], group["eps"], group["weight_decay"]))]

    def _update_by_torch(
        self, group: Group, weights: list[Tensor], gradients: list[Tensor], states: list[State]
    ) -> None:
        lamb.lamb(weights, gradients, states, group)


class Lars(WithMomentum, lars.Lars):
    """ipex.optim.Lars, prepared."""

    _stock = lars.Lars
    _kernel = "lars"

    def _options(self, group: Group) -> list[float]:
        keys = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "trust_coefficient", "eps")
        return [float(group[key]) for key in keys]

    def _update_by_torch(
        self, group: Group, weights: list[Tensor], gradients: list[Tensor], states: list[State]
    ) -> None:
        lars.lars(weights, gradients, states, group)


CLASSES: dict[type[torch.optim.Optimizer], type[PreparedOptimizer]] = {
    cls._stock: cls for cls in (SGD, Adagrad, Adam, AdamW, Lamb, Lars)
}
