"""What a prepared optimizer does differently: one fused step for all parameters, and masters of 16-bit weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import is_
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from . import by_triton
from .masters import hold, master_of, set_weight, settled_master, weight_of

State = dict[str, Any]
Group = dict[str, Any]


def all_same(ones: Sequence[object], others: Sequence[object]) -> bool:
    """Whether both have the very same objects, in order. No Python runs per element: there may be thousands."""
    return len(ones) == len(others) and all(map(is_, ones, others))


StepOnDevice = Callable[[Any, str, list[float]], None]


def has_kernels(device: torch.device) -> bool:
    """Return whether steps on this device are ours."""
    return device.type == "cpu" or by_triton.has_kernels(device)


def step_on(device: torch.device) -> StepOnDevice:
    """Return what updates collected parameters on this device."""
    if device.type == "cpu" and not by_triton.has_kernels(device):
        return lambda kernels, name, options: getattr(kernels, name)(options)
    return by_triton.DeviceStep(device)


class Plan:
    """Parameters, masters and states as the kernels have them, and a way to see whether the optimizer still does."""

    def __init__(self, optimizer: PreparedOptimizer) -> None:
        self.groups = [list(group["params"]) for group in optimizer.param_groups]
        self.keys = [optimizer._state_keys(group) for group in optimizer.param_groups]
        self.parameters = [p for group in self.groups for p in group]
        self.group_of = [i for i, group in enumerate(self.groups) for _ in group]
        masters = [master_of(p) for p in self.parameters]
        self.kernels = torch.classes.ipex.TrainedParameters(self.parameters, self.group_of, masters)
        for index, parameter in enumerate(self.parameters):
            state = optimizer.state.get(parameter, {})
            if all(state.get(key) is not None for key in self.keys[self.group_of[index]]):
                self.hand_over(index, state, starts=False)
        self.held = list(self.values_in(optimizer))
        # What updates the parameters on each device.
        devices = {p.device for p in self.parameters if has_kernels(p.device)} or {torch.device("cpu")}
        self.steps = {device: step_on(device) for device in devices}

    def hand_over(self, index: int, state: State, starts: bool) -> None:
        """Give the kernels a parameter's state."""
        keys = self.keys[self.group_of[index]]
        moved = [state[key] for key in keys if key != "step"]
        if "step" in keys and state["step"].device.type != "cpu":
            state["step"] = state["step"].cpu()  # of torch's fused step, which counts on the device
        self.kernels.set_state(index, moved, state["step"] if "step" in keys else None, starts)

    @staticmethod
    def values_in(optimizer: PreparedOptimizer) -> Iterator[object]:
        """All tensors of all states, in the order of dicts."""
        return chain.from_iterable(map(dict.values, optimizer.state.values()))

    def fits(self, optimizer: PreparedOptimizer) -> bool:
        """Whether nobody replaced a parameter, a tensor of a state or a kind of state since."""
        groups = optimizer.param_groups
        return (
            len(groups) == len(self.groups)
            and all(all_same(group["params"], own) for group, own in zip(groups, self.groups))
            and [optimizer._state_keys(group) for group in groups] == self.keys
            and sum(map(len, optimizer.state.values())) == len(self.held)
            and all(map(is_, self.values_in(optimizer), self.held))
        )


class PreparedOptimizer(torch.optim.Optimizer):
    """Mixed into an optimizer's class by `prepare`, for one of its instances."""

    fused: bool
    _step_supports_amp_scaling: bool
    _plan: Plan | None = None
    _stock: type[torch.optim.Optimizer]
    _kernel: str

    # What each optimizer says of itself, in covered.py.

    def _state_keys(self, group: Group) -> tuple[str, ...]:
        """Return what the kernels need of a state, in their order; "step" counts."""
        raise NotImplementedError

    def _new_state(self, group: Group, parameter: Tensor, **like: Any) -> State:
        raise NotImplementedError

    def _options(self, group: Group) -> list[float]:
        """Return the options as the kernel reads them, but for the last one, the scale of the gradient."""
        raise NotImplementedError

    def _update_by_torch(
        self, group: Group, weights: list[Tensor], gradients: list[Tensor], states: list[State]
    ) -> None:
        raise NotImplementedError

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        self._opt_called = True  # for LR schedulers
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        found_inf = getattr(self, "found_inf", None)  # of a GradScaler, as grad_scale
        if found_inf is None or not found_inf.item():
            with torch.no_grad():
                self._update()
        return loss

    # LR schedulers would replace the step of the instance to note that it was called.
    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]

    def _update(self) -> None:
        scale = getattr(self, "grad_scale", None)
        gradient_scale = 1.0 if scale is None else 1.0 / scale.item()
        if not self.fused:
            with_gradient = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
            return self._update_others(with_gradient, gradient_scale)

        if self._plan is None or not self._plan.fits(self):
            self._plan = Plan(self)
        plan = self._plan
        options: list[float] = []
        for group in self.param_groups:
            options += self._options(group)
            options.append(-gradient_scale if group["maximize"] else gradient_scale)
        left: set[int] | None = None
        for device, step in plan.steps.items():
            lacking, others = plan.kernels.collect(device)
            for index in lacking:
                parameter, group = plan.parameters[index], self.param_groups[plan.group_of[index]]
                new = self._new_state(group, parameter, dtype=torch.float32, memory_format=torch.preserve_format)
                self.state[parameter].update(new)
                plan.hand_over(index, self.state[parameter], starts=True)
            if lacking:
                plan.held = list(plan.values_in(self))
            step(plan.kernels, self._kernel, options)
            left = set(others) if left is None else left & set(others)
        if left:
            self._update_others([plan.parameters[index] for index in sorted(left)], gradient_scale)

    def _update_others(self, parameters: list[Tensor], gradient_scale: float) -> None:
        """Update by torch's ops: for sparse gradients, float64, complex numbers, other devices."""
        wanted = {id(p) for p in parameters}
        for group in self.param_groups:
            own = [p for p in group["params"] if id(p) in wanted]
            if not own:
                continue
            weights, gradients, states = [], [], []
            for parameter in own:
                weight, gradient = weight_of(parameter), parameter.grad
                assert gradient is not None
                if not self.state[parameter]:
                    new = self._new_state(group, weight, memory_format=torch.preserve_format)
                    self.state[parameter].update({key: t for key, t in new.items() if key != "momentum_buffer"})
                gradient = gradient if gradient.dtype == weight.dtype else gradient.to(weight.dtype)
                weights.append(weight)
                gradients.append(gradient if gradient_scale == 1 else gradient * gradient_scale)
                states.append(self.state[parameter])
            self._update_by_torch(group, weights, gradients, states)
            for parameter, weight in zip(own, weights):
                if master_of(parameter) is not None:
                    set_weight(parameter, weight)

    @property
    def _original_step(self) -> Callable[..., Any]:
        """The step that torch's class has. It knows nothing of masters."""
        if any(master_of(p) is not None for group in self.param_groups for p in group["params"]):
            raise RuntimeError(
                "optimizer._original_step: expected float32 weights, got 16-bit ones whose float32 values only the "
                "prepared step updates. Call optimizer.step()."
            )
        return MethodType(self._stock.step, self)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group, as torch does."""
        super().add_param_group(param_group)
        reason = why_group_stays(self.param_groups[-1])
        if reason is not None:
            self.param_groups.pop()
            raise ValueError(
                f"optimizer.add_param_group: expected a group for the prepared step, got one that {reason}. "
                "Put it into an optimizer of its own."
            )

    def load_state_dict(self, state_dict: State) -> None:
        """Load the state. torch gives it the dtype of the parameter, which for one with a master is float32's."""
        loaded: State = {}
        last = self.register_load_state_dict_pre_hook(lambda _, found: loaded.update(found))
        first = self.register_load_state_dict_post_hook(lambda _: self._restore_float32(loaded), prepend=True)
        try:
            super().load_state_dict(state_dict)
        finally:
            last.remove()
            first.remove()

    def _restore_float32(self, loaded: State) -> None:
        numbers = [number for group in loaded["param_groups"] for number in group["params"]]
        parameters = [p for group in self.param_groups for p in group["params"]]
        for number, parameter in zip(numbers, parameters):
            if master_of(parameter) is None:
                continue
            for key, value in loaded["state"].get(number, {}).items():
                if isinstance(value, Tensor) and key != "step":
                    self.state[parameter][key] = value.to(dtype=torch.float32, device=parameter.device)

    def __getstate__(self) -> State:
        """Return what copies and pickles hold: masters too."""
        masters = {p: settled_master(p) for group in self.param_groups for p in group["params"]}
        held = {p: master for p, master in masters.items() if master is not None}
        return {**super().__getstate__(), "fused": self.fused, "_masters": held}

    def __setstate__(self, state: State) -> None:
        """Take the state of a copy, or the one that torch has loaded."""
        masters = state.pop("_masters", {})
        super().__setstate__(state)
        self._plan = None
        for parameter, master in masters.items():
            hold(parameter, master)


def why_group_stays(group: Group) -> str | None:
    """Return why the options of a group are not for a fused step, or None."""
    if group.get("differentiable"):
        return "is differentiable"
    if group.get("capturable"):
        return "is capturable, which is for GPUs"
    if len({id(p) for p in group["params"]}) < len(group["params"]):
        return "has a parameter twice, which torch updates twice"
    return None
