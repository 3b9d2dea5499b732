"""The region in which linears compute on 8-bit floats, and at whose end their scales are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from ._recipe import DelayedScaling
from ._scales import TensorScales


@dataclass(frozen=True)
class Region:
    """What a linear needs to know of the region that it is called in."""

    enabled: bool
    calibrating: bool
    recipe: DelayedScaling
    device: torch.device | None
    # Of the linears that looked at their tensors, in the order of their first calls.
    seen: dict[int, TensorScales] = field(default_factory=dict)

    def takes(self, device: torch.device) -> bool:
        """Whether there is anything to do for a linear on this device."""
        return (self.enabled or self.calibrating) and (self.device is None or self.device.type == device.type)


# A variable of the thread, or task: regions of others are none of its business.
_region: ContextVar[Region | None] = ContextVar("ipex.quantization.fp8 region", default=None)


def current_region() -> Region | None:
    """Return the innermost region that this thread is in."""
    return _region.get()


@contextmanager
def fp8_autocast(
    enabled: bool = False,
    calibrating: bool = False,
    fp8_recipe: DelayedScaling | None = None,
    fp8_group: dist.ProcessGroup | None = None,
    device: str | torch.device | None = None,
) -> Iterator[None]:
    """Let the FP8 linears that are called in this region compute on 8-bit floats.

    `ipex.quantization.fp8.prepare_fp8` makes FP8 linears. With `enabled` they multiply 8-bit floats and sum in float32,
    here and in the backward pass, wherever that is called. Linears in training mode look at how large their numbers
    are, and with `calibrating` others do too, also in a region that is not enabled, which computes in floats. The
    scales of the linears that looked are computed when the region ends, those of gradients from what was seen up to
    then, and reduced over `fp8_group`: without one over all processes, where torch.distributed runs. So all processes
    of a group call the same linears in the same order.

    `fp8_recipe` is `DelayedScaling()` where it is None. `device` lets only linears on such a device take part. Regions
    nest: the innermost one counts. Other threads are not concerned.
    """
    if fp8_recipe is not None and not isinstance(fp8_recipe, DelayedScaling):
        raise TypeError(
            f"ipex.quantization.fp8.fp8_autocast: expected a DelayedScaling in fp8_recipe, got {fp8_recipe!r}."
        )
    only = None if device is None else torch.device(device)
    region = Region(bool(enabled), bool(calibrating), fp8_recipe or DelayedScaling(), only)
    before = _region.set(region)
    try:
        yield
    finally:
        _region.reset(before)
    # Not after an error: the other processes may not come here.
    _update(list(region.seen.values()), region.recipe, fp8_group)


@torch.no_grad()
def _update(seen: list[TensorScales], recipe: DelayedScaling, group: dist.ProcessGroup | None) -> None:
    if not seen:
        return
    device = seen[0].scale.device
    amaxes = torch.stack([scales.amaxes().to(device) for scales in seen])
    if recipe.reduce_amax and dist.is_available() and dist.is_initialized():
        dist.all_reduce(amaxes, dist.ReduceOp.MAX, group)
    for scales, own in zip(seen, amaxes):
        scales.update(own, recipe)
