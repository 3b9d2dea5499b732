"""A mode of the model's own reaches every op that has modes, and the report says which those are."""

import pytest
import torch
from torch import nn

import ipex
from ipex import FP32MathMode
from support import contexts


class Everything(nn.Module):
    """Each kind of op that packs, and a branch."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.linear = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.lstm = nn.LSTM(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.convolution(x)).mean(3).transpose(1, 2)
        y = self.linear(y) if bool(y.sum() > 0) else self.second(y)
        y = self.lstm(y)[0]
        return torch.matmul(y, y.transpose(1, 2))


def optimized(mode=None):
    return ipex.jit_optimize(torch.jit.script(Everything().eval()), fp32_math_mode=mode)


def pinned(model):
    return [(d.node.split()[0], d.applied, d.reason) for d in ipex.explain(model) if d.pass_name == "pin_math_mode"]


@pytest.mark.parametrize("mode", [FP32MathMode.FP32, FP32MathMode.BF32])
def test_fires(mode):
    model = optimized(mode)
    assert sorted(pinned(model)) == [
        ("ipex::convolution_run", True, mode.name),
        ("ipex::linear_run", True, mode.name),
        ("ipex::linear_run", True, mode.name),
        ("ipex::lstm_run", True, mode.name),
        ("ipex::matmul_run", True, mode.name),
    ]
    described = [context.describe() for context in contexts(model)]
    assert sum(f"math_mode={mode.name}" in text for text in described) == 5


def test_declines_without_a_mode():
    model = optimized()
    assert pinned(model) == []
    assert sum("math_mode=as the process" in context.describe() for context in contexts(model)) == 5


def test_refuses_a_model_whose_ops_are_packed():
    with pytest.raises(RuntimeError, match="expected a model that was not optimised before"):
        ipex.jit_optimize(optimized(), fp32_math_mode=FP32MathMode.BF32)


def test_the_original_is_left_alone():
    original = torch.jit.script(Everything().eval())
    before = str(original.inlined_graph)
    ipex.jit_optimize(original, fp32_math_mode=FP32MathMode.BF32)
    assert str(original.inlined_graph) == before
