"""The step that Lamb and Lars share, in torch's ops: group by group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class ByGroup(torch.optim.Optimizer):
    """An optimizer whose parameters are updated a group at a time."""

    def update(self, weights: list[Any], group: dict[str, Any]) -> None:
        """Update weights, all of which have gradients, with the options of their group."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.update([p for p in group["params"] if p.grad is not None], group)
        return loss
