"""A norm whose result is added to a stream."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, told

NAME = "fuse_norm_sum"
CONSTANTS = (
    "%none : NoneType = prim::Constant()",
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
    "%eps : float = prim::Constant[value=1e-05]()",
    "%shape : int[] = prim::Constant[value=[8]]()",
)
LAYER_NORM = "%n : Tensor = ipex::layer_norm(%x, %shape, %w, %b, %eps)"
RMS_NORM = "%n : Tensor = ipex::rms_norm(%x, %w, %eps, %none, %none)"
CAST = "%c : Tensor = aten::type_as(%n, %x)"
SUM = "%s : Tensor = aten::sum(%y, %none)"  # does not show the strides of %y
ADD = "%y : Tensor = aten::add(%r, %n, %one)"


def ir(*lines: str, returns: str = "%y") -> str:
    return graph_ir("%x : Tensor, %r : Tensor, %w : Tensor, %b : Tensor", *CONSTANTS, *lines, returns=returns)


def added(graph, kind: str) -> list[bool]:
    """Of each norm of this kind whether it is added to something."""
    return ["residual" not in norm for norm in told(graph, f"ipex::{kind}")]


both = pytest.mark.parametrize(("norm", "made"), [(LAYER_NORM, "layer_norm"), (RMS_NORM, "rms_norm")])


@both
@pytest.mark.parametrize("lines", [(ADD,), (ADD.replace("%r, %n", "%n, %r"), SUM)])
def test_fires(norm, made, lines):
    result = assert_rewrites(NAME, ir(norm, *lines, returns="%s" if SUM in lines else "%y"))
    assert added(result, made) == [True]
    assert result.count("aten::add") == 0


@both
def test_fires_through_a_cast(norm, made):
    result = assert_rewrites(NAME, ir(norm, CAST, ADD.replace("%n", "%c")))
    assert added(result, made) == [True]
    assert result.count("aten::type_as") == 0


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((LAYER_NORM, ADD.replace("%one", "%two")), "alpha is not 1"),
        ((LAYER_NORM, ADD.replace("%r", "%two").replace("%two, %n", "%n, %two")), None),  # add.Scalar
        ((LAYER_NORM, "%t : Tensor = aten::relu_(%r)", ADD), "something is overwritten"),
        ((LAYER_NORM, ADD.replace("%r, %n", "%n, %r")), "somebody sees its strides"),
    ],
)
def test_declines(lines, reason):
    assert_unchanged(NAME, ir(*lines), reason=reason)


def test_declines_a_sum_that_is_overwritten_and_returned():
    lines = (LAYER_NORM, ADD.replace("%r, %n", "%n, %r"), "%z : Tensor = aten::exp_(%y)")
    assert_unchanged(NAME, ir(*lines, returns="%z"), reason="somebody sees its strides")


def test_leaves_a_norm_that_others_read():
    assert_unchanged(NAME, ir(LAYER_NORM, ADD, returns="%y, %n"), reason=None)


class PostNorm(nn.Module):
    """As Swin v2 and Gemma: what a block gives is normalised, and then added."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.first, self.last = kind, nn.Linear(24, 24), nn.Linear(24, 24)
        self.weight, self.bias = nn.Parameter(torch.randn(24)), nn.Parameter(torch.randn(24))

    def norm(self, x: Tensor) -> Tensor:
        if self.kind == "layer":
            return F.layer_norm(x, (24,), self.weight, self.bias)
        y = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * (1.0 + self.weight.float())).type_as(x)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.norm(self.first(x))
        return x + self.norm(self.last(x))


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, kind, script):
    x = torch.randn(2, 5, 24)
    also = (torch.randn(3, 1, 24), torch.randn(2, 24, 5).transpose(1, 2), x * torch.nan, torch.randn(0, 5, 24))
    optimized = check_against_eager(PostNorm(kind), x, script=script, also=also)
    assert added(optimized, f"{kind}_norm").count(True) == 2
    assert_round_trip(optimized, tmp_path, x)


def test_gradients():
    model = PostNorm("rms").eval().requires_grad_(False)
    with torch.no_grad():
        optimized = torch.jit.trace(model, torch.randn(2, 5, 24))
    optimized = ipex.jit_optimize(optimized)
    found = []
    for forward in (model, optimized):
        x = torch.linspace(-2, 2, 240).view(2, 5, 24).requires_grad_()
        forward(x).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)


class Embedded(nn.Module):
    """As AIMv2: a norm of tokens that lie as the image that they come from, and positions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.positions = nn.Parameter(torch.randn(24)), nn.Parameter(torch.randn(1, 5, 24))

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y + self.positions


def test_a_sum_has_the_strides_of_a_norm_that_comes_first():
    check_against_eager(Embedded(), torch.randn(2, 24, 5), script=True)
