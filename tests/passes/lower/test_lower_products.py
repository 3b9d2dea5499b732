"""lower_ops on products, convolutions whose weight is computed, and attention."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_round_trip, check_against_eager, kinds


class Stirred(nn.Module):
    """A matrix is added, which no bias of a linear is."""

    def __init__(self) -> None:
        super().__init__()
        self.stir = nn.Conv1d(4, 6, 3, padding=1)
        self.term = nn.Parameter(torch.randn(6, 5))
        self.weight = nn.Parameter(torch.randn(8, 5))

    def forward(self, x):
        return torch.addmm(self.term, self.stir(x), self.weight)


@pytest.mark.parametrize("script", [False, True])
def test_a_sum_with_a_product(tmp_path, script):
    x = torch.randn(4, 8)
    optimized = check_against_eager(Stirred(), x, script=script, also=(x * torch.nan,))
    assert kinds(optimized)["ipex::addmm"] == 1
    assert_round_trip(optimized, tmp_path, x)


def test_has_the_dtype_of_autocast():
    """TorchScript's executor splits aten's op, and sums a bfloat16 product and a float32 term in float32."""
    model, x = Stirred().eval(), torch.randn(4, 8)
    optimized = ipex.jit_optimize(torch.jit.script(model))
    for _ in range(3):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            assert optimized(x).dtype == model(x).dtype == torch.bfloat16


def test_addmm_can_be_switched_off():
    module = torch.jit.trace(Stirred().eval(), torch.randn(4, 8))
    assert kinds(ipex.jit_optimize(module, disable=["ipex::addmm"]))["aten::addmm"] == 1


class Mixture(nn.Module):
    """The weight of each sample is a mixture, as in CondConv."""

    def __init__(self) -> None:
        super().__init__()
        self.experts, self.router = nn.Parameter(torch.randn(3, 8 * 9)), nn.Linear(8, 3)

    def forward(self, x):
        batch, channels = x.shape[0], x.shape[1]
        weights = torch.sigmoid(self.router(x.mean((2, 3)))) @ self.experts
        y = F.conv2d(
            x.reshape(1, batch * channels, *x.shape[2:]),
            weights.view(batch * channels, 1, 3, 3),
            padding=1,
            groups=batch * channels,
        )
        return F.silu(y.view(batch, channels, *y.shape[2:]))


@pytest.mark.parametrize("batch", [1, 2])
def test_a_convolution_with_a_computed_weight(tmp_path, batch):
    x = torch.randn(batch, 8, 9, 10)
    optimized = check_against_eager(Mixture(), x, also=(torch.randn(batch, 8, 20, 5), x * torch.nan))
    assert kinds(optimized)["ipex::unpacked_convolution"] == 1
    assert_round_trip(optimized, tmp_path, x)


class Filter(nn.Module):
    def forward(self, x, w):
        return F.conv2d(x, w, None, stride=2, padding=1, groups=x.size(1))


def test_a_scripted_convolution():
    x, w = torch.randn(2, 6, 9, 9), torch.randn(6, 1, 3, 3)
    optimized = check_against_eager(Filter(), x, w, script=True)
    assert kinds(optimized)["ipex::unpacked_convolution"] == 1


def test_leaves_constant_weights():
    optimized = check_against_eager(nn.Sequential(nn.Conv2d(6, 6, 3, groups=6), nn.ReLU()), torch.randn(1, 6, 9, 9))
    assert kinds(optimized)["ipex::unpacked_convolution"] == 0


class Attention(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = F.scaled_dot_product_attention(x, x, x, mask)
        return y * F.scaled_dot_product_attention(x, x, x, scale=0.3, is_causal=True)


def test_attention(tmp_path):
    x, mask = torch.randn(2, 3, 9, 8), torch.randn(9, 9)
    optimized = check_against_eager(Attention(), x, mask)
    assert kinds(optimized)["ipex::scaled_dot_product_attention"] == 2
    assert_round_trip(optimized, tmp_path, x, mask)


def test_attention_can_be_switched_off():
    x, mask = torch.randn(2, 3, 9, 8), torch.randn(9, 9)
    optimized = ipex.jit_optimize(
        torch.jit.trace(Attention().eval(), (x, mask)), disable=["ipex::scaled_dot_product_attention"]
    )
    assert kinds(optimized)["aten::scaled_dot_product_attention"] == 2
