"""torch.compile with inductor, weights frozen."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from .backend import Backend, Call, Job, NotApplicable


class Inductor(Backend):
    """The first call compiles, and counts as preparation here as it does for whoever waits for it."""

    name, title = "compile", "torch.compile"

    def prepare(self, job: Job) -> Call:
        """Compile for these shapes."""
        model = job.build()
        if isinstance(model, torch.jit.ScriptModule):
            raise NotApplicable("needs a Python model")
        compiled = torch.compile(model, dynamic=False, options={"freezing": True})
        with self.context():
            compiled(*job.inputs)
        return lambda: compiled(*job.inputs)

    def context(self) -> AbstractContextManager[Any]:
        """Freezing wants gradients off, and knows no inference tensors."""
        return torch.no_grad()
