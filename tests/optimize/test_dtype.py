"""dtype: which weights are cast, and which are not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ipex
from optimize.models import Tagger, trained


class Own(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) + self.weight.sum()


def cast(model: nn.Module, **options) -> nn.Module:
    return ipex.optimize(model.eval(), dtype=torch.bfloat16, level="O0", **options)


@pytest.mark.parametrize(
    ("module", "is_cast"),
    [
        (nn.Linear(3, 3), True),
        (nn.Conv1d(3, 3, 1), True),
        (nn.Conv3d(3, 3, 1), True),
        (nn.ConvTranspose2d(3, 3, 1), True),
        (nn.Embedding(3, 3), True),
        (nn.LSTM(3, 3), True),
        (nn.GRU(3, 3), False),
        (nn.LayerNorm(3), False),
        (nn.BatchNorm2d(3), False),
        (Own(3, 3), False),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_cast(module, is_cast):
    model = nn.Sequential(module)
    expected = torch.bfloat16 if is_cast else torch.float32
    assert {p.dtype for p in cast(model).parameters()} == {expected}
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_float32_casts_nothing():
    optimized = ipex.optimize(trained(Tagger()), dtype=torch.float32)
    assert {p.dtype for p in optimized.parameters()} == {torch.float32}


def test_a_weight_that_overflows_stays():
    model = nn.Linear(3, 3).eval()
    with torch.no_grad():
        model.weight[0, 0] = 1e5
    optimized = ipex.optimize(model, dtype=torch.float16)
    assert optimized.weight.dtype == torch.float32
    assert "its weight overflows in float16" in [d.reason for d in ipex.explain(optimized).declined]


def test_a_sample_is_run_in_the_dtype():
    model = trained(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)))
    optimized = ipex.optimize(model, dtype=torch.bfloat16, sample_input=torch.randn(2, 4))
    assert [d for d in ipex.explain(optimized).declined if d.pass_name == "sample_input"] == []
