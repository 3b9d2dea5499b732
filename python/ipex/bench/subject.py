"""What is timed: a model of models/, or a TorchScript file with inputs as they were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from .models import MODELS, SEED


@dataclass(frozen=True)
class Subject:
    """A name out of MODELS, or a path and a description of each input."""

    name: str
    batch: int
    inputs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What tables call it."""
        return MODELS[self.name].title if self.name in MODELS else Path(self.name).name

    def make(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """Build or load the model in eval mode, and make its inputs."""
        if self.name in MODELS:
            return MODELS[self.name].make(self.batch)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return torch.jit.load(self.name).eval(), tuple(map(make_input, self.inputs))


def subjects(name: str, batches: tuple[int, ...], inputs: tuple[str, ...]) -> list[Subject]:
    """Return one subject per batch, or raise ValueError for what can't be timed."""
    if name in MODELS:
        if inputs:
            raise ValueError(f"ipex bench: expected no --input with the model {name}, which has its own. Take --batch.")
        return [Subject(name, batch) for batch in batches or MODELS[name].batches]
    if not Path(name).is_file():
        raise ValueError(f"ipex bench: expected a file or a model out of {', '.join(MODELS)}, got {name!r}.")
    if not inputs or batches:
        raise ValueError(f"ipex bench: expected --input, and no --batch, with the file {name}.")
    return [Subject(str(Path(name).resolve()), make_input(inputs[0]).shape[0], inputs)]


def make_input(text: str) -> Tensor:
    """Make noise of 1x3x224x224, or integers below 30522 of 1x128:int64:30522."""
    shape_text, _, rest = text.partition(":")
    dtype_text, _, limit_text = rest.partition(":")
    try:
        shape = [int(size) for size in shape_text.split("x")]
        dtype = getattr(torch, dtype_text or "float32")
        limit = int(limit_text or 2)
        is_float = dtype.is_floating_point
    except (ValueError, AttributeError):
        raise ValueError(f"ipex: expected 1x3x224x224 or 1x128:int64:30522 in --input, got {text!r}.") from None
    return torch.randn(shape).to(dtype) if is_float else torch.randint(0, limit, shape).to(dtype)
