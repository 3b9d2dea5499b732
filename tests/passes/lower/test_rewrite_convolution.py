import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "rewrite_convolution"


def ir(transposed: str = "0", weight: str = "%w") -> str:
    return graph_ir(
        "%x : Tensor, %w : Tensor, %flag : bool",
        "%none : NoneType = prim::Constant()",
        "%n1 : int = prim::Constant[value=1]()",
        f"%t : bool = prim::Constant[value={transposed}]()",
        "%l : int[] = prim::Constant[value=[1, 1]]()",
        f"%y : Tensor = aten::_convolution(%x, {weight}, %none, %l, %l, %l, %t, %l, %n1, %t, %t, %t, %t)",
        returns="%y",
    )


def test_fires():
    result = assert_rewrites(NAME, ir())
    assert result.count("ipex::unpacked_convolution") == 1
    assert result.count("aten::_convolution") == 0


@pytest.mark.parametrize("text", [ir("1"), ir().replace("%l, %t, %l", "%l, %flag, %l")])
def test_declines_transposed(text):
    assert_unchanged(NAME, text, reason="it is transposed")


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
def test_matches_eager(tmp_path, batch):
    x = torch.randn(batch, 8, 9, 10)
    optimized = check_against_eager(Mixture(), x, also=(torch.randn(batch, 8, 20, 5), x * torch.nan))
    assert kinds(optimized)["ipex::unpacked_convolution"] == 1
    assert_round_trip(optimized, tmp_path, x)


class Filter(nn.Module):
    def forward(self, x, w):
        return F.conv2d(x, w, None, stride=2, padding=1, groups=x.size(1))


def test_scripts():
    x, w = torch.randn(2, 6, 9, 9), torch.randn(6, 1, 3, 3)
    optimized = check_against_eager(Filter(), x, w, script=True)
    assert kinds(optimized)["ipex::unpacked_convolution"] == 1


def test_leaves_constant_weights():
    optimized = check_against_eager(nn.Sequential(nn.Conv2d(6, 6, 3, groups=6), nn.ReLU()), torch.randn(1, 6, 9, 9))
    assert kinds(optimized)["ipex::unpacked_convolution"] == 0
