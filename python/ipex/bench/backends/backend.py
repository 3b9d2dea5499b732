"""What a backend is: a way to make a model ready, and to call it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Call = Callable[[], Any]

# Largest difference from eager that passes, relative to the largest element of the output.
FP32_TOLERANCE = 1e-4
# With factors rounded to bfloat16, by up to 2^-9 of themselves, in dozens of layers.
BF32_TOLERANCE = 1e-1


class NotApplicable(Exception):
    """The backend has no way to run this model; the message says why. Not a failure."""


@dataclass(frozen=True)
class Job:
    """What a backend is asked to run. `folder` is shared by all who run this model with this batch."""

    build: Callable[[], torch.nn.Module]
    inputs: tuple[Tensor, ...]
    threads: int
    folder: Path

    def trace(self) -> torch.jit.ScriptModule:
        """Build the model and trace it, unless it is TorchScript already."""
        model = self.build()
        if isinstance(model, torch.jit.ScriptModule):
            return model
        return torch.jit.trace(model, self.inputs, check_trace=False)  # type: ignore[no-any-return]


class Backend:
    """Base of all backends. A call takes no arguments: inputs were handed over when it was made."""

    name = ""
    title = ""
    packages: tuple[str, ...] = ()  # to be installed, by the names that one imports
    tolerance = FP32_TOLERANCE
    is_peer = True  # someone else's, computing in float32: what ipex has to be as fast as

    def missing(self) -> list[str]:
        """Return the packages that are not installed."""
        return [package for package in self.packages if importlib.util.find_spec(package) is None]

    def import_packages(self) -> None:
        """Import them, before memory and time are looked at."""
        for package in self.packages:
            importlib.import_module(package)

    def prepare(self, job: Job) -> Call:
        """Do all that one does before the first call."""
        raise NotImplementedError

    def save(self, path: Path) -> bool:
        """Save what was prepared. False: this backend has no saved form."""
        return False

    def load(self, path: Path, job: Job) -> Call:
        """Load what was saved."""
        raise NotImplementedError

    def context(self) -> AbstractContextManager[Any]:
        """Return the mode to call in."""
        return torch.inference_mode()


def tensors(result: Any) -> list[Tensor]:
    """Flatten what a backend returns: tensors or arrays, in tuples, lists or dictionaries."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, Mapping):
        return [tensor for value in result.values() for tensor in tensors(value)]
    if isinstance(result, (list, tuple)):
        return [tensor for value in result for tensor in tensors(value)]
    return [torch.as_tensor(result)]
