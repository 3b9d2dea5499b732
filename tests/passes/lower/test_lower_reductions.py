"""lower_ops on softmax, layer_norm, sums, variances and norms over some dimensions."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ipex
from support import assert_round_trip, assert_same, check_against_eager, kinds, why_aten


@pytest.mark.parametrize("dim", [-1, 1, 0])
@pytest.mark.parametrize("script", [False, True])
def test_softmax(tmp_path, dim, script):
    x = torch.randn(5, 6)
    model = nn.Sequential(nn.Linear(6, 10), nn.Softmax(dim), nn.Hardtanh(), nn.LogSoftmax(dim))
    optimized = check_against_eager(model, x, script=script, also=(x[:1], x[:, None] * 100, x * torch.nan))
    assert kinds(optimized)["ipex::softmax"] == kinds(optimized)["ipex::log_softmax"] == 1
    assert_round_trip(optimized, tmp_path, x)


@pytest.mark.parametrize("norm", [nn.LayerNorm(33), nn.LayerNorm(33, bias=False), nn.LayerNorm((4, 33), eps=1e-3)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(tmp_path, norm, affine):
    if not affine:
        norm = nn.LayerNorm(norm.normalized_shape, norm.eps, elementwise_affine=False)
    for parameter in norm.parameters():
        nn.init.uniform_(parameter)
    x = torch.randn(2, 4, 33)
    also = (x[:1], x.transpose(0, 1).contiguous().transpose(0, 1), x * 1e-4, torch.full_like(x, 3.0), x * torch.nan)
    optimized = check_against_eager(nn.Sequential(norm, nn.Linear(33, 5)), x, also=also)
    assert kinds(optimized)["ipex::layer_norm"] == 1
    assert_round_trip(optimized, tmp_path, x)


def layer_norm(*arguments):
    return torch.ops.ipex.layer_norm(*arguments)


def test_what_aten_computes():
    x, weight, bias = torch.randn(4, 16), torch.randn(16), torch.randn(16)
    cases = {
        "float32": (x.double(), [16], weight.double(), bias.double()),
        "finite": (x * torch.inf, [16], weight, bias),
    }
    for reason, arguments in cases.items():
        assert_same(layer_norm(*arguments, 1e-5), F.layer_norm(*arguments))
        assert reason in str(why_aten(lambda arguments=arguments: layer_norm(*arguments, 1e-5)))
    for rows in (x, x.t().contiguous().t()):
        assert_same(layer_norm(rows, [16], weight, bias, 1e-5), F.layer_norm(rows, [16], weight, bias))
        assert why_aten(lambda rows=rows: layer_norm(rows, [16], weight, bias, 1e-5)) is None
    with pytest.raises(RuntimeError, match="normalized_shape"):
        layer_norm(x, [15], None, None, 1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(layer_norm(x, [16], weight, bias, 1e-5), F.layer_norm(x, [16], weight, bias))


def test_gradients_are_those_of_eager():
    x, weight = torch.randn(4, 16, requires_grad=True), torch.randn(16, requires_grad=True)
    expected = torch.autograd.grad(F.layer_norm(x, [16], weight).sum(), [x, weight])
    assert_same(torch.autograd.grad(layer_norm(x, [16], weight, None, 1e-5).sum(), [x, weight]), expected)


def test_layer_norm_can_be_switched_off():
    x = torch.randn(2, 8)
    optimized = ipex.jit_optimize(torch.jit.trace(nn.LayerNorm(8).eval(), x), disable=["ipex::layer_norm"])
    assert kinds(optimized)["aten::layer_norm"] == 1


class ResponseNorm(nn.Module):
    """ConvNeXt v2's: each channel against the mean of all, after a convolution, before another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 40, 3), nn.Conv2d(40, 8, 1)
        self.weight, self.bias = nn.Parameter(torch.randn(40)), nn.Parameter(torch.randn(40))

    def forward(self, x):
        y = self.first(x)
        size = y.norm(p=2, dim=(2, 3), keepdim=True)
        share = size / (size.mean(dim=1, keepdim=True) + 1e-6)
        shape = (1, -1, 1, 1)
        normed = y + torch.addcmul(self.bias.view(shape), self.weight.view(shape), y * share)
        return self.last(normed), torch.linalg.vector_norm(y, dim=(1, 2))


def test_norms_of_channels(tmp_path):
    x = torch.randn(2, 3, 12, 13)
    for script in (False, True):
        also = (x[:1], x.to(memory_format=torch.channels_last), x * torch.inf)
        optimized = check_against_eager(ResponseNorm(), x, script=script, also=also)
        assert kinds(optimized)["ipex::vector_norm"] == 2
        assert kinds(optimized)["aten::addcmul"] == 0
        assert_round_trip(optimized, tmp_path, x)


def test_nothing_is_converted_around_it():
    class Classifier(ResponseNorm):
        def forward(self, x):
            return super().forward(x)[0].mean((2, 3))

    optimized = check_against_eager(Classifier(), torch.randn(2, 3, 12, 13))
    assert kinds(optimized)["ipex::to_channels_last"] == 1
    assert kinds(optimized)["ipex::restore_layout"] == 1  # the result


class SplitAttention(nn.Module):
    """Branches that are cut out of the channels, weighted and added, as in ResNeSt."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.last = nn.Conv2d(3, 32, 3, groups=1), nn.Conv2d(16, 32, 1), nn.Conv2d(16, 8, 1)

    def forward(self, x):
        y = self.first(x).unflatten(1, (2, 16))
        gate = self.gate(y.sum(1).mean((2, 3), keepdim=True)).unflatten(1, (2, 16)).softmax(1)
        return self.last((y * gate).sum(dim=1))


def test_branches_of_channels():
    optimized = check_against_eager(SplitAttention(), torch.randn(2, 3, 12, 13), also=(torch.randn(1, 3, 6, 6),))
    assert kinds(optimized)["ipex::sum"] == kinds(optimized)["ipex::elementwise.sum"] == 1


class Spelled(nn.Module):
    """A layer_norm and a softmax as a model spells them out, and what their gradients hang on."""

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        normal = centred * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)
        shifted = torch.exp(normal - normal.max(-1, keepdim=True)[0])
        share = shifted / shifted.sum(-1, keepdim=True)
        return share, x.std((0, 1)), x.var(1, correction=0), x.amax((0, 2)), x.max(1)


@pytest.mark.parametrize("script", [False, True])
def test_spelled_norms(tmp_path, script):
    x = torch.randn(3, 5, 24)
    x[1, 2] = x[1, 2, 0]  # equal elements: which of them is the largest decides a gradient
    also = (x.mT, x[:1], x * torch.inf, x[:, :, :1], x.clone().requires_grad_())
    optimized = check_against_eager(Spelled(), x, script=script, also=also)
    found = kinds(optimized)
    assert (found["ipex::var"], found["ipex::std"], found["ipex::amax"], found["ipex::max_values"]) == (2, 1, 1, 1)
    assert (found["aten::var"], found["aten::std"], found["aten::max"]) == (0, 0, 1)
    assert_round_trip(optimized, tmp_path, x)
