"""Values that leave the range of a dtype between two ops that are one op of ours: docs/reference/precision.md."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ipex


class Scaled(nn.Module):
    """The sum overflows float32, a tenth of it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)
        self.linear.weight.data.fill_(1e19)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * 0.1


class Normalized(nn.Module):
    """The squares overflow float16."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


class Attention(nn.Module):
    """The scores overflow float16."""

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.matmul(x, x.transpose(-1, -2)) / 1e4
        return torch.matmul(torch.softmax(scores, -1), x)


CASES = {
    "a constant that is folded": (Scaled, torch.full((2, 4), 1e19), torch.float32),
    "a norm": (Normalized, torch.linspace(250, 500, 32).view(1, 4, 8), torch.float16),
    "attention": (Attention, torch.linspace(-200, 250, 64).view(1, 2, 4, 8), torch.float16),
}


@pytest.mark.parametrize("case", CASES)
def test_what_overflows_on_the_way_in_eager_is_what_more_bits_give(case):
    model, x, dtype = CASES[case]
    model = model().eval()
    with torch.no_grad():
        expected = model.double()(x.double())
        model = model.to(dtype)
        eager = model(x.to(dtype))
        ours = ipex.jit_optimize(torch.jit.trace(model, x.to(dtype), check_trace=False))(x.to(dtype))
    assert not torch.allclose(eager.double(), expected, rtol=0.01, equal_nan=True)
    torch.testing.assert_close(ours.double(), expected, rtol=2e-3, atol=0)


@pytest.mark.parametrize("case", CASES)
def test_what_is_finite_at_each_step_stays_finite(case):
    model, x, dtype = CASES[case]
    model, x = model().eval().to(dtype), (x / x.abs().max()).to(dtype)
    with torch.no_grad():
        ours = ipex.jit_optimize(torch.jit.trace(model, x, check_trace=False))(x)
        torch.testing.assert_close(ours, model(x), rtol=2e-3, atol=1e-3)
