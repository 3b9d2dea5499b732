"""A convolution with a weight for each image, spelled as groups of one image."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "fuse_image_weights"
OP = "ipex::image_weights_convolution"
LINES = (
    "%none : NoneType = prim::Constant()",
    "%false : bool = prim::Constant[value=0]()",
    "%n0 : int = prim::Constant[value=0]()",
    "%n1 : int = prim::Constant[value=1]()",
    "%n2 : int = prim::Constant[value=2]()",
    "%n3 : int = prim::Constant[value=3]()",
    "%n8 : int = prim::Constant[value=8]()",
    "%ones : int[] = prim::Constant[value=[1, 1]]()",
    "%zeros : int[] = prim::Constant[value=[0, 0]]()",
    "%order : int[] = prim::Constant[value=[1, 0, 2, 3]]()",
    "%batch : int = aten::size(%x, %n0)",
    "%c : int = aten::size(%x, %n1)",
    "%h : int = aten::size(%x, %n2)",
    "%w : int = aten::size(%x, %n3)",
    "%all : int = aten::mul(%batch, %c)",
    "%gathered : int[] = prim::ListConstruct(%n1, %all, %h, %w)",
    "%i : Tensor = aten::reshape(%x, %gathered)",
    "%y : Tensor = aten::conv2d(%i, %weights, %none, %ones, %zeros, %ones, %batch)",
    "%p : Tensor = aten::permute(%y, %order)",
    "%oh : int = aten::size(%y, %n2)",
    "%ow : int = aten::size(%y, %n3)",
    "%sizes : int[] = prim::ListConstruct(%batch, %n8, %oh, %ow)",
    "%r : Tensor = aten::view(%p, %sizes)",
    "%z : Tensor = aten::conv2d(%r, %next, %none, %ones, %zeros, %ones, %n1)",
    "%s : Tensor = aten::mean(%z, %ones, %false, %none)",
)


def ir(lines: tuple[str, ...] = LINES, returns: str = "%s") -> str:
    return graph_ir("%x : Tensor, %weights : Tensor, %next : Tensor", *lines, returns=returns)


def changed(before: str, after: str) -> str:
    assert any(before in line for line in LINES)
    return ir(tuple(line.replace(before, after) for line in LINES))


def test_fires():
    result = assert_rewrites(NAME, ir())
    assert result.count(OP) == 1
    assert result.count("aten::conv2d") == 1
    assert result.count("aten::reshape") == result.count("aten::view") == result.count("aten::permute") == 0


def test_fires_without_a_permutation():
    lines = tuple(line.replace("view(%p", "view(%y") for line in LINES if "%order" not in line)
    assert assert_rewrites(NAME, ir(lines)).count(OP) == 1


def test_declines_strides_that_are_seen():
    assert_unchanged(NAME, ir(returns="%r"), reason="somebody sees the strides")


def test_declines_what_is_overwritten():
    lines = (*LINES[:-1], "%t : Tensor = aten::relu_(%x)", LINES[-1])
    assert_unchanged(NAME, ir(lines), reason="something is overwritten")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ListConstruct(%n1, %all, %h, %w)", "ListConstruct(%n2, %all, %h, %w)"),
        ("ListConstruct(%n1, %all, %h, %w)", "ListConstruct(%n1, %all, %w, %h)"),
        ("ListConstruct(%n1, %all, %h, %w)", "ListConstruct(%n1, %all, %h, %w, %n1)"),
        ("ListConstruct(%batch, %n8, %oh, %ow)", "ListConstruct(%batch, %n8, %ow, %oh)"),
        ("value=[1, 0, 2, 3]", "value=[0, 1, 3, 2]"),
    ],
)
def test_leaves_other_reshapes(before, after):
    assert_unchanged(NAME, changed(before, after), reason=None)


def test_leaves_a_result_that_others_read():
    lines = (*LINES, "%t : Tensor = aten::neg(%y)")
    assert_unchanged(NAME, ir(lines, returns="%s, %t"), reason=None)


def test_leaves_a_result_whose_sizes_others_ask_for():
    assert_unchanged(NAME, ir(returns="%s, %oh"), reason=None)


class Mixture(nn.Module):
    """As in CondConv, between convolutions; its window and groups as given."""

    def __init__(self, window: int, depthwise: bool, permutes: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1)
        self.window, self.groups, self.permutes = window, 8 if depthwise else 1, permutes
        self.experts = nn.Parameter(torch.randn(3, 8 * 8 // self.groups * window * window) / 4)
        self.router = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.first(x))
        batch, channels, height, width = x.shape
        weights = torch.sigmoid(self.router(x.mean((2, 3)))) @ self.experts
        weights = weights.view(batch * 8, 8 // self.groups, self.window, self.window)
        y = x.reshape(1, batch * channels, height, width)
        y = F.conv2d(y, weights, padding=self.window // 2, groups=batch * self.groups)
        if self.permutes:
            y = y.permute(1, 0, 2, 3)
        return self.last(F.silu(y.reshape(batch, 8, y.shape[2], y.shape[3]))).mean((2, 3))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("permutes", [False, True])
@pytest.mark.parametrize(("window", "depthwise"), [(1, False), (3, True), (3, False)])
def test_matches_eager(tmp_path, window, depthwise, permutes, batch):
    x = torch.randn(batch, 3, 9, 10)
    also = (torch.randn(batch, 3, 20, 6), x.to(memory_format=torch.channels_last), x * torch.nan)
    optimized = check_against_eager(Mixture(window, depthwise, permutes), x, also=also)
    assert kinds(optimized)[OP] == 1
    assert_round_trip(optimized, tmp_path, x)


class Viewed(nn.Module):
    """Views its images as one, at once or behind a convolution."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 1) if first else nn.Identity()

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        x = self.first(x)
        y = F.conv2d(x.view(1, x.size(0) * 4, x.size(2), x.size(3)), weights, groups=x.size(0))
        return y.view(x.size(0), 4, y.size(2), y.size(3)).mean((2, 3))


def test_a_view_that_eager_refuses_raises():
    x, weights = torch.randn(2, 4, 5, 6), torch.randn(8, 4, 1, 1)
    optimized = check_against_eager(Viewed(first=False), x, weights)
    assert kinds(optimized)[OP] == 1
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        optimized(x.to(memory_format=torch.channels_last), weights)


def test_a_view_of_what_we_made_channels_last_passes():
    optimized = check_against_eager(Viewed(first=True), torch.randn(2, 4, 5, 6), torch.randn(8, 4, 1, 1))
    assert kinds(optimized)[OP] == 1


def test_one_image_keeps_its_layout():
    optimized = check_against_eager(Mixture(1, False, True), torch.randn(1, 3, 9, 10))
    found = kinds(optimized)
    assert found["ipex::rearrange"] == 0
    assert found["ipex::to_channels_last"] == 0  # the first convolution reads the input as it lies


def test_a_scripted_model_takes_any_number_of_images():
    x = torch.randn(3, 3, 9, 10)
    optimized = check_against_eager(Mixture(3, False, True), x, script=True, also=(x[:1], x[:2]))
    assert kinds(optimized)[OP] == 1
