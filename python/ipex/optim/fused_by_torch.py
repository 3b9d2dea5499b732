"""Parameters on another device than the CPU: there torch has fused steps of its own, which are off by default."""

from __future__ import annotations

import torch

from .._torch_internals import devices_of_fused_steps

FUSED_BY_TORCH = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


def fuse_by_torch(optimizer: torch.optim.Optimizer) -> bool:
    """Turn torch's fused step on where it has one for all parameters. Return whether it is on."""
    groups = optimizer.param_groups
    parameters = [p for group in groups for p in group["params"]]
    devices = set(devices_of_fused_steps()) - {"cpu"}
    if type(optimizer) not in FUSED_BY_TORCH or not parameters:
        return False
    if not all(p.device.type in devices and p.is_floating_point() for p in parameters):
        return False
    if any(group.get("foreach") or group.get("differentiable") or group.get("fused") is False for group in groups):
        return False  # what the user chose
    for settings in (optimizer.defaults, *groups):
        settings["fused"] = True
    if optimizer.state:
        optimizer.load_state_dict(optimizer.state_dict())  # a fused step counts on the device
    optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]
    optimizer.fused = True  # type: ignore[attr-defined]
    return True
