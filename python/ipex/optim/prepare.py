"""The training half of `ipex.optimize`."""

from __future__ import annotations

import torch
from torch import nn

from .covered import CLASSES
from .fused_by_torch import fuse_by_torch
from .masters import lower_weights, master_of
from .prepared import PreparedOptimizer, has_kernels, why_group_stays

LOW = (torch.bfloat16, torch.float16)


def prepare(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    dtype: torch.dtype | None,
    split_master_weight_for_bf16: bool,
    fuse_update_step: bool,
) -> list[str]:
    """Change both in place, and return what was not done, and why.

    The weights of convolutions, linears and embeddings get the dtype, if it is one of 16 bits, and masters; the
    optimizer gets a fused step, and keeps the masters. What a reason is given for stays as it is.
    """
    lowers = dtype in LOW
    if not (lowers or fuse_update_step):
        return []
    if fuse_update_step and not lowers and fuse_by_torch(optimizer):
        return []
    reason = _why_step_stays(optimizer, lowers)
    if reason is not None:
        weights = (
            " Its weights stay float32: only update steps of ipex keep float32 values of 16-bit ones." if lowers else ""
        )
        return [f"{type(optimizer).__name__} keeps its own step: {reason}.{weights}"]

    reasons = []
    if lowers:
        assert dtype is not None
        reasons = lower_weights(model, dtype, split=split_master_weight_for_bf16 and dtype == torch.bfloat16)
    if not isinstance(optimizer, PreparedOptimizer):
        # An LR scheduler's; ours tells schedulers by itself that it was called.
        optimizer.__dict__.pop("step", None)
        optimizer.__class__ = CLASSES[type(optimizer)]
        optimizer._patch_step_function()  # hooks
    assert isinstance(optimizer, PreparedOptimizer)
    optimizer._plan = None
    optimizer.fused = fuse_update_step or getattr(optimizer, "fused", False)
    if any(master_of(p) is not None and p.dtype == torch.float16 for g in optimizer.param_groups for p in g["params"]):
        # A GradScaler then leaves it to the step to unscale gradients, in float32. It refuses to do so in float16.
        optimizer._step_supports_amp_scaling = True
    return reasons


def _why_step_stays(optimizer: torch.optim.Optimizer, lowers: bool) -> str | None:
    if isinstance(optimizer, PreparedOptimizer):
        return None
    if type(optimizer) not in CLASSES:
        names = ", ".join(sorted(stock.__name__ for stock in CLASSES))
        return f"ipex has update steps for {names} themselves, and none for this class"
    replaced = optimizer.__dict__.get("step")
    if replaced is not None and not hasattr(replaced, "_wrapped_by_lr_sched"):
        return "somebody replaced its step"
    if not lowers and not any(has_kernels(p.device) for group in optimizer.param_groups for p in group["params"]):
        return "none of its parameters is on a CPU, or on an NVIDIA GPU with triton installed"
    for group in optimizer.param_groups:
        stays = why_group_stays(group)
        if stays is not None:
            return f"a group {stays}"
    return None
