"""The scales of a linear's tensors, and what they come from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._recipe import DelayedScaling

# Places in the tensors below.
INPUT, WEIGHT, GRADIENT = range(3)
_COUNT = 3
_SAVED = ("scale", "fp8_max", "amax_history", "updates")
_NOT_SEEN = -1.0


class TensorScales:
    """What belongs to one linear: of its input, its weight and the gradient of its result, in this order.

    Tensors here are replaced, never written to: a backward pass holds those of its forward pass.
    """

    def __init__(self) -> None:
        self.scale = torch.ones(_COUNT)
        self.fp8_max = torch.ones(_COUNT)  # what the scale brings an amax to
        self.amax_history = torch.zeros(1, _COUNT)  # the newest first
        self.updates = torch.zeros(_COUNT, dtype=torch.int64)  # regions that saw the tensor
        self.were_seen = False  # here, or before they were saved
        self._amaxes = [torch.tensor(_NOT_SEEN)] * _COUNT  # since the last update
        self._dtypes: tuple[torch.dtype, ...] | None = None  # that `fp8_max` is of, where it is known

    def begin(self, recipe: DelayedScaling, device: torch.device) -> None:
        """Be ready for a call on this device: a history of the recipe's length, and scales for its formats."""
        if self.scale.device != device:
            for name in _SAVED:
                setattr(self, name, getattr(self, name).to(device))
            self._amaxes = [amax.to(device) for amax in self._amaxes]
        length = recipe.amax_history_len
        if len(self.amax_history) != length:
            kept = self.amax_history[:length]
            self.amax_history = torch.cat([kept, kept.new_zeros(length - len(kept), _COUNT)])
        dtypes = recipe.fp8_format.dtypes()
        if self._dtypes != dtypes:
            fp8_max = torch.tensor([torch.finfo(dtype).max for dtype in dtypes], device=device)
            self.scale = torch.where(self.updates > 0, self.scale * (fp8_max / self.fp8_max), self.scale)
            self.fp8_max, self._dtypes = fp8_max, dtypes

    def see(self, which: int, tensor: Tensor) -> None:
        """Remember how large its numbers are. One that is not finite counts as not seen."""
        if tensor.numel() > 0:
            amax = tensor.detach().abs().amax().float()
            self._amaxes[which] = self._amaxes[which].maximum(torch.where(amax.isfinite(), amax, _NOT_SEEN))

    def amaxes(self) -> Tensor:
        """Return what was seen since the last update, with negative numbers for what was not."""
        return torch.stack(self._amaxes)

    def update(self, amaxes: Tensor, recipe: DelayedScaling) -> None:
        """Add these to the histories, and compute the scales that are due."""
        amaxes = amaxes.to(self.scale.device)
        seen = amaxes >= 0
        self.amax_history = torch.where(
            seen, torch.cat([amaxes.unsqueeze(0), self.amax_history[:-1]]), self.amax_history
        )
        due = seen & (self.updates % recipe.interval == 0)
        scale = recipe.scaled(recipe.amax(self.amax_history), self.scale, self.fp8_max)
        self.scale = torch.where(due, scale, self.scale)
        self.updates = self.updates + seen
        self._amaxes = [torch.full_like(amax, _NOT_SEEN) for amax in self._amaxes]
        self.were_seen = True

    def state(self) -> dict[str, Tensor]:
        """Return what is saved."""
        return {name: getattr(self, name) for name in _SAVED}

    def load(self, state: Any) -> None:
        """Take what `state` returned, here or elsewhere."""
        for name in _SAVED:
            found = state.get(name) if isinstance(state, dict) else None
            if not _is_like(found, getattr(self, name)):
                got = f"{found.dtype} {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
                raise ValueError(
                    f"ipex.quantization.fp8: expected {name} of an input, a weight and a gradient in the state of a "
                    f"linear, got {got}. The checkpoint is damaged: save it again."
                )
        device = self.scale.device
        for name in _SAVED:
            setattr(self, name, state[name].detach().to(device, copy=True))
        self._amaxes = [torch.full_like(amax, _NOT_SEEN) for amax in self._amaxes]
        self._dtypes = None
        self.were_seen = bool((self.updates > 0).any())


def _is_like(found: Any, own: Tensor) -> bool:
    """Whether it differs in the length of the history alone."""
    return (
        isinstance(found, Tensor)
        and found.dtype == own.dtype
        and found.dim() == own.dim()
        and found.shape[-1] == _COUNT
        and found.numel() > 0
    )
