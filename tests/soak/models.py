"""Models in eager and optimised, inputs of many sizes for them, and how far their results may lie apart."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import ipex
from ipex._tolerance import TOLERANCE as TOLERANCE_OF_VERIFY
from ipex.bench.models import MODELS
from kinds_of_model import BF32, KINDS
from support import FP32_TOLERANCE

# Relative to the largest element. Rounding adds up in whole models: of the others, what `ipex.verify` allows.
TOLERANCE = {
    "float32": FP32_TOLERANCE,
    "BF32": TOLERANCE_OF_VERIFY["BF32"],
    "bfloat16": TOLERANCE_OF_VERIFY["bfloat16"],
    "quantized": TOLERANCE_OF_VERIFY["int8"],
}
GRADIENT_TOLERANCE = TOLERANCE_OF_VERIFY["float32"]

# Models of many layers, by their names in ipex.bench.models, and an input that a call is done with soon.
WHOLE: dict[str, tuple[int, ...]] = {"tiny_mlp": (4, 64), "mobilenet_v2": (1, 3, 64, 64)}
WORDS_OF_QUANTIZED = ("int8", "int4", "E4M3", "bfloat16 weights")
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)


@dataclass
class Subject:
    """A model, the module made of it, and an input whose sizes in `free` may be others."""

    name: str
    eager: nn.Module
    module: Any
    example: Tensor
    free: tuple[int, ...]

    @property
    def precision(self) -> str:
        """What it computes in, in the math mode of this moment."""
        if any(word in self.name for word in WORDS_OF_QUANTIZED):
            return "quantized"
        if "bfloat16" in self.name or "dtype" in self.name:
            return "bfloat16"
        has_mode = self.name in KINDS and KINDS[self.name].optimize is BF32
        return "BF32" if has_mode or ipex.get_fp32_math_mode() is ipex.FP32MathMode.BF32 else "float32"

    @property
    def has_near_gradients(self) -> bool:
        """Whether near results have near gradients: a rounding moves some values over the bend of a relu."""
        has_bends = any(isinstance(part, (nn.ReLU, nn.ReLU6)) for part in self.eager.modules())
        return self.precision == "float32" and not has_bends

    def input(self, draw: random.Random) -> Tensor:
        """Return an input of other sizes, in the layout of the example."""
        sizes = list(self.example.shape)
        for dim in self.free:
            sizes[dim] = draw.randint(1, 6) if dim == 0 else max(1, sizes[dim] - draw.randint(0, 3))
        if not self.example.is_floating_point():
            return torch.randint(0, 300, sizes)
        if "static" in self.name:  # what lies outside of the ranges that were seen saturates
            x = self.example[torch.randint(0, len(self.example), sizes[:1])]
            return x[tuple(slice(size) for size in sizes)].contiguous()
        x = torch.randn(sizes).to(self.example.dtype)
        is_channels_last = x.dim() == 4 and self.example.is_contiguous(memory_format=torch.channels_last)
        return x.contiguous(memory_format=torch.channels_last) if is_channels_last else x


def build(name: str) -> Subject:
    """Build a model with random weights, and leave it as it is."""
    eager, x = (MODELS[name].make(1)[0], torch.randn(WHOLE[name])) if name in WHOLE else _of_kind(name)
    first = 2 if any(isinstance(part, CONVOLUTIONS) for part in eager.modules()) else 1
    free = range(first, x.dim() if first == 2 or not x.is_floating_point() else x.dim() - 1)
    return Subject(name, eager.requires_grad_(False), None, x, (0, *free))


def optimize(subject: Subject) -> Any:
    """Optimise the eager model as its kind wants it. Traces it."""
    optimize_kind = ipex.jit_optimize if subject.name in WHOLE else KINDS[subject.name].optimize
    with torch.no_grad():
        return optimize_kind(subject.eager, subject.example)


def optimize_script(subject: Subject, script: torch.jit.ScriptModule) -> Any:
    """Optimise its TorchScript as its kind wants it."""
    with torch.no_grad():
        return ipex.jit_optimize(script) if subject.name in WHOLE else KINDS[subject.name].optimize(script, None)


def _of_kind(name: str) -> tuple[nn.Module, Tensor]:
    return KINDS[name].make().eval(), KINDS[name].x()


def difference(actual: Tensor, expected: Tensor, tolerance: float) -> str:
    """Say how a result differs, "" where it doesn't."""
    for what in ("dtype", "shape"):
        if getattr(actual, what) != getattr(expected, what):
            return f"{what} {getattr(actual, what)} in place of {getattr(expected, what)}"
    actual, expected = actual.detach().double(), expected.detach().double()
    scale = max(expected.abs().max().item(), 1e-3)
    error = (actual - expected).abs().max().item() / scale
    return "" if error <= tolerance else f"largest error {error:.2g}, allowed is {tolerance:.2g}"
