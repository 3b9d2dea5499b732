import pytest
import torch
from torch import nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "rewrite_sums"


def ir(order: str = "2", dims: str = "[2, 3]", dtype: str = "%none") -> str:
    return graph_ir(
        "%x : Tensor",
        f"%order : int = prim::Constant[value={order}]()",
        f"%dims : int[] = prim::Constant[value={dims}]()" if dims else "%dims : NoneType = prim::Constant()",
        "%keepdim : bool = prim::Constant[value=1]()",
        "%none : NoneType = prim::Constant()",
        "%double : int = prim::Constant[value=7]()",
        f"%y : Tensor = aten::linalg_vector_norm(%x, %order, %dims, %keepdim, {dtype})",
        returns="%y",
    )


def scripted(order: str = "2") -> str:
    return ir(order).replace("linalg_vector_norm", "norm").replace(", %none)", ")")


def of_sum(dims: str = "[2, 3]", dtype: str = "%none") -> str:
    return ir(dims=dims, dtype=dtype).replace("linalg_vector_norm(%x, %order, ", "sum(%x, ")


def test_fires_on_a_sum():
    result = assert_rewrites(NAME, of_sum())
    assert (result.count("ipex::sum"), result.count("aten::sum")) == (1, 0)


def of_deviation(op: str, arguments: str) -> str:
    text = ir().replace("aten::linalg_vector_norm(%x, %order, %dims, %keepdim, %none)", f"aten::{op}(%x, {arguments})")
    return text.replace("%double : int = prim::Constant[value=7]", "%unbiased : bool = prim::Constant[value=0]")


@pytest.mark.parametrize("op", ["var", "std"])
@pytest.mark.parametrize("correction", ["%unbiased", "%order", "%none"])
def test_fires_on_deviations(op, correction):
    result = assert_rewrites(NAME, of_deviation(op, f"%dims, {correction}, %keepdim"))
    assert (result.count(f"ipex::{op}"), result.count(f"aten::{op}")) == (1, 0)


def of_largest(returns: str = "%y") -> str:
    lines = ("%dim : int = prim::Constant[value=1]()", "%keepdim : bool = prim::Constant[value=1]()")
    return graph_ir("%x : Tensor", *lines, "%y : Tensor, %i : Tensor = aten::max(%x, %dim, %keepdim)", returns=returns)


def test_fires_on_largest_elements():
    assert assert_rewrites(NAME, of_largest()).count("ipex::max_values") == 1
    text = ir().replace("linalg_vector_norm(%x, %order, %dims, %keepdim, %none)", "amax(%x, %dims, %keepdim)")
    assert assert_rewrites(NAME, text).count("ipex::amax") == 1


@pytest.mark.parametrize("graph", [ir(), scripted()])
def test_fires(graph):
    result = assert_rewrites(NAME, graph)
    assert result.count("ipex::vector_norm") == 1
    assert result.count("aten::linalg_vector_norm") == result.count("aten::norm") == 0


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (ir(order="1"), "it is not the Euclidean norm"),
        (scripted(order="1"), "it is not the Euclidean norm"),
        (ir(dims=""), "it does not say which dimensions"),
        (ir(dtype="%double"), "it gives a dtype of its own"),
        (of_largest("%y, %i"), "somebody reads its indices"),
        (of_deviation("var", "%none, %unbiased, %keepdim"), "it does not say which dimensions"),
        (of_sum(dims=""), "it does not say which dimensions"),
        (of_sum(dtype="%double"), "it gives a dtype of its own"),
    ],
)
def test_declines(graph, reason):
    assert_unchanged(NAME, graph, reason=reason)


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


def test_matches_eager(tmp_path):
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
    assert kinds(optimized)["ipex::sum"] == kinds(optimized)["ipex::elementwise_sum"] == 1


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
