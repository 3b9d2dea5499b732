"""Weights of 16 bits whose float32 value is kept: split in two halves, or beside them.

A parameter in 16 bits has its master as an attribute, which the optimizer holds too. It is

    int16      the lower half of the float32 value; the parameter is the upper one (decision 0023)
    float32    the value; the parameter is a rounded copy

A master has the version of its parameter (`tensor._version`). Where they differ, somebody else wrote the parameter:
what was written is then the value.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._saved_once import save_once

# Modules that autocast runs in 16 bits anyway. All others, norms first of all, keep float32.
LOWERED = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.Embedding,
    nn.EmbeddingBag,
)
NAMES = ("weight", "bias")


def lower_weights(model: nn.Module, dtype: torch.dtype, split: bool) -> list[str]:
    """Give the weights of these modules the dtype, and masters; return which of them stay as they are, and why."""
    reasons = []
    readers = _other_readers(model)
    for name, module in model.named_modules():
        if not isinstance(module, LOWERED):
            continue
        for own in NAMES:
            parameter = module._parameters.get(own)
            if parameter is None or master_of(parameter) is not None:
                continue
            if id(parameter) in readers:
                reasons.append(f"{name}.{own} stays as it is: {readers[id(parameter)]} reads it too")
            elif type(parameter) is nn.Parameter and parameter.dtype == torch.float32 and not parameter.is_meta:
                lower(parameter, dtype, split)
            else:
                reasons.append(
                    f"{name}.{own} stays as it is: expected a float32 parameter with values, "
                    f"got a {type(parameter).__name__} of {parameter.dtype} on {parameter.device}"
                )
        if any(master_of(p) is not None for p in module._parameters.values()):
            _keep_state_dict_in_float32(module)
    return reasons


def _other_readers(model: nn.Module) -> dict[int, str]:
    """Return which modules of other kinds hold a parameter, by its id: their code computes in its dtype."""
    others = {name or "the model": m for name, m in model.named_modules() if not isinstance(m, LOWERED)}
    return {id(p): name for name, module in others.items() for p in module._parameters.values() if p is not None}


def lower(parameter: nn.Parameter, dtype: torch.dtype, split: bool) -> None:
    """Give a float32 parameter the dtype, and a master."""
    value, gradient = parameter.data, parameter.grad  # .detach() would share the parameter's version
    if split:
        low, master = torch.ops.ipex.split_weight(value)
    else:
        low, master = value.to(dtype), value
    parameter.grad = None  # it must have the parameter's dtype
    parameter.data = low
    parameter.grad = gradient if gradient is None else gradient.to(dtype)
    hold(parameter, master)


def hold(parameter: Tensor, master: Tensor) -> None:
    """Make this the parameter's master."""
    parameter._ipex_master = master  # type: ignore[attr-defined]
    torch.ops.ipex.set_version_of(master, parameter)


def master_of(parameter: Tensor | None) -> Tensor | None:
    """Return the master, if there is one that fits."""
    master = getattr(parameter, "_ipex_master", None)
    if parameter is None or not isinstance(master, Tensor) or parameter.dtype not in (torch.bfloat16, torch.float16):
        return None
    if master.device != parameter.device:  # the model moved; its masters follow
        moved = master.to(parameter.device)
        torch.ops.ipex.set_version_of(moved, master)
        parameter._ipex_master = master = moved  # type: ignore[attr-defined]
    return master


@torch.no_grad()
def weight_of(parameter: Tensor) -> Tensor:
    """Return the weight: the parameter itself where it has no master, else every bit of its float32 value."""
    master = master_of(parameter)
    if master is None:
        return parameter.detach()
    if not torch.ops.ipex.has_version_of(master, parameter):
        return parameter.detach().float()
    return torch.ops.ipex.join_weight(parameter, master) if master.dtype == torch.int16 else master


@torch.no_grad()
def set_weight(parameter: Tensor, value: Tensor) -> None:
    """Write a float32 value to a parameter with a master."""
    master = master_of(parameter)
    assert master is not None
    if master.dtype == torch.int16:
        top, bottom = torch.ops.ipex.split_weight(value)
        parameter.copy_(top)
        master.copy_(bottom)
    else:
        parameter.copy_(value)
        master.copy_(value)
    torch.ops.ipex.set_version_of(master, parameter)


def settled_master(parameter: Tensor) -> Tensor | None:
    """Return the master, after what somebody else wrote to the parameter has reached it."""
    master = master_of(parameter)
    if master is not None and not torch.ops.ipex.has_version_of(master, parameter):
        set_weight(parameter, parameter.detach().float())
    return master


def _keep_state_dict_in_float32(module: nn.Module) -> None:
    if getattr(module, "_ipex_keeps_float32", False):
        return
    module._ipex_keeps_float32 = True  # type: ignore[assignment]
    module.register_state_dict_post_hook(_save_float32)
    module.register_load_state_dict_pre_hook(_load_float32)
    module.register_load_state_dict_post_hook(_after_load)


# Functions of the file, so that a module with these hooks can be copied and pickled.
def _save_float32(module: nn.Module, state_dict: dict[str, Any], prefix: str, _metadata: Any) -> None:
    for name in NAMES:
        parameter = module._parameters.get(name)
        if parameter is not None and prefix + name in state_dict:
            # A copy of the module has no masters, and is as precise as its parameters.
            save_once(state_dict, prefix + name, parameter, lambda parameter: weight_of(parameter).float())


def _load_float32(module: nn.Module, state_dict: dict[str, Any], prefix: str, metadata: Any, *_: Any) -> None:
    if metadata.get("assign_to_params_buffers", False):
        return  # the loaded tensors become the parameters
    written = []
    for name in NAMES:
        parameter, loaded = module._parameters.get(name), state_dict.get(prefix + name)
        if parameter is None or master_of(parameter) is None or not isinstance(loaded, Tensor):
            continue
        if loaded.shape == parameter.shape:  # else torch says what is wrong
            set_weight(parameter, loaded.to(dtype=torch.float32, device=parameter.device))
            state_dict[prefix + name] = parameter.detach().clone()
            written.append(name)
    module._ipex_written = written  # type: ignore[assignment]


# torch has copied the upper half onto itself.
def _after_load(module: nn.Module, _incompatible: Any) -> None:
    for name in module.__dict__.pop("_ipex_written", ()):
        parameter = module._parameters[name]
        assert parameter is not None
        torch.ops.ipex.set_version_of(master_of(parameter), parameter)
