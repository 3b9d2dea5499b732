import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    kinds,
    packed_post_ops,
)

NAME = "move_arithmetic"


def ir(arithmetic: str, *more: str, returns: str = "%l") -> str:
    return graph_ir(
        "%x : Tensor, %w : Tensor, %other : Tensor",
        "%none : NoneType = prim::Constant()",
        "%one : int = prim::Constant[value=1]()",
        "%both : int[] = prim::Constant[value=[2, 3]]()",
        "%keep : bool = prim::Constant[value=0]()",
        "%back : int[] = prim::Constant[value=[0, 3, 1, 2]]()",
        "%c : Float(8, 1, 1, strides=[1, 1, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
        "%rows : Float(1, 1, 8, strides=[8, 8, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
        "%r : Tensor = aten::permute(%other, %back)",
        "%y : Tensor = aten::linear(%x, %w, %none)",
        "%p : Tensor = aten::permute(%y, %back)",
        *more,
        f"%z : Tensor = aten::{arithmetic}",
        "%m : Tensor = aten::mean(%z, %both, %keep, %none)",
        "%l : Tensor = aten::linear(%m, %w, %none)",
        returns=returns,
    )


@pytest.mark.parametrize(
    ("arithmetic", "moved"),
    [
        ("add(%p, %r, %one)", "add(%y, %other"),
        ("sub(%r, %p, %one)", "sub(%other, %y"),
        ("mul(%p, %c)", "mul(%y"),
        ("div_(%p, %c)", "div_(%y"),
        ("add_(%p, %r, %one)", "add_(%y, %other"),
    ],
)
def test_fires(arithmetic, moved):
    result = assert_rewrites(NAME, ir(arithmetic))
    linear = re.search(r"(%\d+) : Tensor = aten::linear", result.graph).group(1)
    assert f"aten::{moved.replace('%y', linear)}" in result.graph
    assert re.findall(r"aten::(\w+)\(", result.graph)[-3:] == ["permute", "mean", "linear"]


@pytest.mark.parametrize("ends", ["%forth : int[] = prim::Constant[value=[0, 2, 3, 1]]()", None])
def test_a_residual_needs_a_known_rank(ends):
    """Its own reader names as many dimensions."""
    more = [ends, "%of_other : Tensor = aten::permute(%other, %forth)"] if ends else []
    text = ir("add(%p, %other, %one)", *more, returns="%l, %of_other" if ends else "%l")
    if ends:
        assert re.search(r"aten::permute\(%other, %\d+\)", assert_rewrites(NAME, text).graph)
    else:
        # %r reads it too, with four dimensions, but that is not needed: take it away.
        text = text.replace("aten::permute(%other, %back)", "aten::neg(%other)")
        assert_unchanged(NAME, text, reason="the rank of the other operand is not known")


@pytest.mark.parametrize(
    ("arithmetic", "more", "returns", "reason"),
    [
        ("mul(%p, %rows)", [], "%l", "the rank of the other operand is not known"),
        ("add(%p, %p, %one)", [], "%l", "its input has another reader"),
        ("add(%p, %r, %one)", [], "%z", "the strides of a result depend on it"),
        ("add(%p, %r, %one)", [], "%l, %p", "its input has another reader"),
        ("add(%p, %r, %one)", [], "%l, %y", "what it is a view of has another reader"),
        ("add(%r, %r, %one)", [], "%l, %p", None),
        ("add_(%r, %p, %one)", [], "%l", None),
        ("add(%p, %r, %one)", ["%q : Tensor = aten::unsqueeze_(%other, %one)"], "%l, %q", None),
    ],
)
def test_declines(arithmetic, more, returns, reason):
    assert_unchanged(NAME, ir(arithmetic, *more, returns=returns), reason=reason)


def test_leaves_what_no_linear_computes():
    text = ir("add(%p, %r, %one)").replace("aten::permute(%y, %back)", "aten::permute(%n, %back)")
    normed = "  %v : Tensor = aten::neg(%x)\n  %n : Tensor = aten::mul(%v, %c)\n"
    assert_unchanged(NAME, text.replace("  %p : Tensor", normed + "  %p : Tensor"), reason=None)


class Block(nn.Module):
    """As ConvNeXt's."""

    def __init__(self, channels: int = 16, scale: str = "after", in_place: bool = False) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.wide, self.narrow = nn.Linear(channels, 32), nn.Linear(32, channels)
        self.gamma = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
        self.scale, self.in_place = scale, in_place

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(F.gelu(self.wide(y)))
        if self.scale == "before":
            y = self.gamma.view(-1) * y
        y = y.permute(0, 3, 1, 2)
        if self.scale == "after":
            y = self.gamma * y
        if self.in_place:
            y += x
            return y
        return x + y


class Stage(nn.Module):
    def __init__(self, **options) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 2, stride=2)
        self.blocks = nn.Sequential(Block(**options), Block(**options), Block(**options))
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


@pytest.mark.parametrize("script", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("scale", ["before", "after", "none"])
def test_blocks_of_convolution_and_linears(scale, in_place, script, tmp_path):
    x = torch.randn(2, 3, 12, 16)
    also = (torch.randn(1, 3, 6, 2), torch.randn(1, 3, 2, 2), x.contiguous(memory_format=torch.channels_last))
    optimized = check_against_eager(Stage(scale=scale, in_place=in_place), x, script=script, also=also)
    assert sum(post_ops in (["add"], ["add_"], ["radd"]) for post_ops in packed_post_ops(optimized)) == 3
    left = kinds(optimized)
    assert left["aten::mul"] == left["aten::add"] == left["aten::add_"] == 0
    assert_round_trip(optimized, tmp_path, x)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_block_alone(layout):
    """The residual is the user's, in planes or channels-last."""
    x = torch.randn(2, 16, 5, 7).contiguous(memory_format=layout)
    model = nn.Sequential(Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
    also = (torch.randn(1, 16, 1, 1), torch.randn(3, 16, 1, 4), x * torch.nan)
    optimized = check_against_eager(model, x, also=also)
    assert any(row.applied for row in ipex.explain(optimized) if row.pass_name == NAME)


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
def test_dtype_under_autocast(given):
    model = nn.Sequential(Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)).eval()
    x = torch.randn(2, 16, 5, 7)
    with torch.no_grad():
        optimized = ipex.jit_optimize(model, x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            eager, ours = model(x.to(given)), optimized(x.to(given))
    assert ours.dtype == eager.dtype
    torch.testing.assert_close(ours.float(), eager.float(), rtol=2e-2, atol=2e-2)


class Spread(nn.Module):
    """The residual is one row, which is spread over the image."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 8)

    def forward(self, x: Tensor, row: Tensor) -> Tensor:
        return (self.linear(x).permute(0, 3, 1, 2) * row.permute(0, 3, 1, 2)).sum(1)


def test_a_residual_that_is_spread():
    optimized = check_against_eager(Spread(), torch.randn(2, 4, 5, 6), torch.randn(1, 1, 5, 8))
    assert any(row.applied for row in ipex.explain(optimized) if row.pass_name == NAME)


def test_can_be_switched_off():
    module = torch.jit.trace(Stage().eval(), torch.randn(2, 3, 4, 8))
    left = kinds(ipex.jit_optimize(module, disable=[NAME, "fuse_elementwise", "restore_in_place"]))
    assert left["aten::mul"] == left["aten::add"] == 3
