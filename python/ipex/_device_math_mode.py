"""The precision of float32 products on devices that torch itself computes on: torch's own switches.

cuda    torch.backends.cuda.matmul, cudnn.conv and cudnn.rnn
xpu     torch.backends.mkldnn, which its kernels ask
"""

from __future__ import annotations

from typing import Any

import torch

State = dict[str, Any]

# What a switch is called, since torch 2.9 and before.
_NEW, _OLD = "fp32_precision", "allow_tf32"


def check_device(device: torch.device, caller: str) -> None:
    """Raise where the device is not one that has modes, or is not there."""
    if device.type not in ("cuda", "xpu"):
        raise ValueError(f"ipex.{caller}: expected the device 'cpu', 'cuda' or 'xpu', got {str(device)!r}.")
    if not getattr(torch, device.type).is_available():
        raise RuntimeError(
            f"ipex.{caller}: expected a device {device.type!r} on this machine, got none. Set the mode of the CPU: "
            "leave `device` out."
        )


def state(device: torch.device) -> State:
    """Return how the switches stand."""
    return {name: getattr(switch, _kind(switch)) for name, switch in _switches(device).items()}


def restore(device: torch.device, before: State) -> None:
    """Set the switches as they stood."""
    for name, switch in _switches(device).items():
        setattr(switch, _kind(switch), before[name])


def allow_tf32(device: torch.device, allowed: bool) -> None:
    """Let products round their factors to TF32, or not."""
    for switch in _switches(device).values():
        value: Any = allowed if _kind(switch) == _OLD else "tf32" if allowed else "ieee"
        setattr(switch, _kind(switch), value)


def allows_tf32(device: torch.device) -> bool:
    """Whether matrix products may round to TF32."""
    return state(device)["matmul"] in (True, "tf32")


def _switches(device: torch.device) -> dict[str, Any]:
    backends: Any = torch.backends
    if device.type == "cuda":
        found = {"matmul": backends.cuda.matmul}
        for name in ("conv", "rnn"):
            found[name] = getattr(backends.cudnn, name, backends.cudnn)
        return found
    return {name: getattr(backends.mkldnn, name, backends.mkldnn) for name in ("matmul", "conv", "rnn")}


def _kind(switch: Any) -> str:
    try:
        getattr(switch, _NEW)
    except (AttributeError, AssertionError, RuntimeError):
        return _OLD
    return _NEW
