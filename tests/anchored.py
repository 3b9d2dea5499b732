"""For the tests of defect classes: every kind of anchor, functions of one, and comparison with eager."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import FP32_TOLERANCE, assert_same

Function = Callable[..., Any]


class Recurrent(nn.Module):
    """The sequence that comes out of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class MatMul(nn.Module):
    """A product of two computed tensors."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(x, torch.tanh(x.transpose(-1, -2)))


# Each keeps the shape of its input, so that the input can be its residual.
ANCHORS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv1d": (lambda: nn.Conv1d(4, 4, 3, padding=1), (2, 4, 10)),
    "conv2d": (lambda: nn.Conv2d(4, 4, 3, padding=1), (2, 4, 8, 8)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, padding=1, groups=4), (2, 4, 8, 8)),
    "conv3d": (lambda: nn.Conv3d(4, 4, 3, padding=1), (2, 4, 5, 6, 4)),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 4, 3, padding=1), (2, 4, 10)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 4, 3, padding=1), (2, 4, 8, 8)),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(4, 4, 3, padding=1), (2, 4, 5, 6, 4)),
    "linear": (lambda: nn.Linear(6, 6), (5, 6)),
    "linear, 3-D": (lambda: nn.Linear(6, 6), (2, 3, 6)),
    "matmul": (MatMul, (3, 4, 4)),
    "lstm": (lambda: Recurrent(nn.LSTM(6, 6, batch_first=True)), (2, 3, 6)),
    "gru": (lambda: Recurrent(nn.GRU(6, 6, batch_first=True)), (2, 3, 6)),
}

every_anchor = pytest.mark.parametrize("anchor", ANCHORS)
every_convolution = pytest.mark.parametrize("anchor", [a for a in ANCHORS if a.startswith(("conv", "depthwise"))])
# One of each kind, where the cases are many.
each_kind = pytest.mark.parametrize("anchor", ["conv2d", "conv_transpose2d", "linear", "matmul", "lstm"])


def named(argument: str, cases: dict[str, Any]) -> pytest.MarkDecorator:
    """Parametrise with cases that have names."""
    return pytest.mark.parametrize(argument, cases.values(), ids=cases.keys())


class After(nn.Module):
    """A function of an anchor and of tensors: `function(anchor, x)` or `function(anchor, x, other)`."""

    def __init__(self, anchor: nn.Module, function: Function) -> None:
        super().__init__()
        self.anchor, self.function = anchor, function

    def forward(self, x: Tensor, other: Tensor | None = None) -> Any:
        return self.function(self.anchor, x) if other is None else self.function(self.anchor, x, other)


def make(anchor: str) -> tuple[nn.Module, Tensor]:
    """Build an anchor and an input for it."""
    build, shape = ANCHORS[anchor]
    return build(), torch.randn(shape)


def batch_norm(anchor: str) -> nn.Module:
    """The batch_norm that belongs behind a convolution, with statistics as a trained model has them."""
    kinds = {"1d": nn.BatchNorm1d, "2d": nn.BatchNorm2d, "3d": nn.BatchNorm3d}
    return lively(kinds.get(anchor[-2:], nn.BatchNorm2d)(4))


def lively(norm: nn.Module) -> nn.Module:
    """Fresh statistics change almost nothing."""
    for value in (norm.weight, norm.running_var):
        nn.init.uniform_(value, 0.5, 1.5)
    for value in (norm.bias, norm.running_mean):
        nn.init.uniform_(value, -0.5, 0.5)
    return norm


def trace(model: nn.Module, *inputs: Tensor) -> torch.jit.ScriptModule:
    """Trace a model; the tracer's advice is for users."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        return torch.jit.trace(model.eval(), copy.deepcopy(inputs), check_trace=False)


def check(model: nn.Module, *calls: tuple[Tensor, ...], tolerance: float = FP32_TOLERANCE) -> torch.jit.ScriptModule:
    """Trace with the inputs of the first call, optimise, and compare every call with eager, inputs included.

    Each call is made three times, because TorchScript recompiles after the first; what it returned must stay as it was.
    """
    optimized = ipex.jit_optimize(trace(model, *calls[0]))
    with torch.no_grad():
        for inputs in (*calls, calls[0]):
            eager_inputs = copy.deepcopy(inputs)
            expected = model(*eager_inputs)
            results = []
            for _ in range(3):
                our_inputs = copy.deepcopy(inputs)
                results.append(optimized(*our_inputs))
                assert_same(our_inputs, eager_inputs, tolerance=0)
            for result in results:
                assert_same(result, expected, tolerance)
    return optimized
