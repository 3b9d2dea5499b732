import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "rewrite_upsample"
CONSTANTS = (
    "%none : NoneType = prim::Constant()",
    "%two : float = prim::Constant[value=2.]()",
    "%size : int[] = prim::Constant[value=[8, 8]]()",
    "%factors : float[] = prim::Constant[value=[2., 2.]]()",
    "%false : bool = prim::Constant[value=0]()",
)
CALLS = {
    "nearest2d": "upsample_nearest2d(%x, %none, %factors)",
    "bilinear2d": "upsample_bilinear2d(%x, %size, %false, %none)",
    "bicubic2d": "upsample_bicubic2d(%x, %none, %false, %factors)",
}
PLAIN_CALLS = {
    "nearest2d": "upsample_nearest2d(%x, %size, {0}, {0})",
    "bilinear2d": "upsample_bilinear2d(%x, %size, %false, {0}, {0})",
    "bicubic2d": "upsample_bicubic2d(%x, %size, %false, {0}, {0})",
}


def ir(call: str, *more: str, returns: str = "%y") -> str:
    return graph_ir("%x : Tensor, %l : bool", *CONSTANTS, f"%y : Tensor = aten::{call}", *more, returns=returns)


@pytest.mark.parametrize("name", CALLS)
def test_fires(name):
    for call in (CALLS[name], PLAIN_CALLS[name].format("%none")):
        result = assert_rewrites(NAME, ir(call))
        assert result.count(f"ipex::upsample_{name}") == 1
        assert result.count(f"aten::upsample_{name}") == 0


@pytest.mark.parametrize("name", PLAIN_CALLS)
def test_declines_factors_of_each_dimension(name):
    assert_unchanged(NAME, ir(PLAIN_CALLS[name].format("%two")), reason="it gives a factor for each dimension")


RESTORE = "%r : Tensor = ipex::restore_layout(%y, %l)"


@pytest.mark.parametrize("name", CALLS)
def test_takes_over_a_conversion(name):
    result = assert_rewrites(NAME, ir(CALLS[name], RESTORE, returns="%r"))
    assert result.count("ipex::restore_layout") == 0
    assert "%l)" in result.graph.split(f"ipex::upsample_{name}")[1].splitlines()[0]


def test_leaves_a_conversion_where_others_read_the_image():
    more = (RESTORE, "%s : Tensor = aten::relu(%y)", "%t : Tensor[] = prim::ListConstruct(%r, %s)")
    assert assert_rewrites(NAME, ir(CALLS["nearest2d"], *more, returns="%t")).count("ipex::restore_layout") == 1


def test_leaves_a_conversion_that_learns_of_the_layout_later():
    later = ("%rank : int = prim::Constant[value=2]()", "%k : bool = ipex::is_channels_last(%x, %rank)")
    more = (*later, RESTORE.replace("%l", "%k"))
    assert assert_rewrites(NAME, ir(CALLS["nearest2d"], *more, returns="%r")).count("ipex::restore_layout") == 1


class Segmenter(nn.Module):
    """As FCN: a prediction for each pixel, and a pyramid's level."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.first, self.second, self.mode = nn.Conv2d(3, 20, 3, 2, 1), nn.Conv2d(20, 7, 1), mode

    def forward(self, x):
        y = torch.relu(self.first(x))
        corners = None if self.mode == "nearest" else True
        level = F.interpolate(y, scale_factor=2.0, mode=self.mode)
        size = (x.size(2), x.size(3))
        return F.interpolate(self.second(y), size=size, mode=self.mode, align_corners=corners), self.second(level)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_matches_eager(tmp_path, mode):
    x = torch.randn(2, 3, 20, 22)
    for script in (False, True):
        also = (x[:1], x.to(memory_format=torch.channels_last), x[:, :, :, :1])
        optimized = check_against_eager(Segmenter(mode), x, script=script, also=also)
        assert kinds(optimized)[f"ipex::upsample_{mode}2d"] >= 2
        assert_round_trip(optimized, tmp_path, x)


def test_a_model_converts_no_large_result():
    optimized = ipex.jit_optimize(torch.jit.trace(Segmenter("bilinear").eval(), torch.randn(1, 3, 20, 22)))
    assert kinds(optimized)["ipex::upsample_bilinear2d"] == 2
    converted = [node for node in optimized.inlined_graph.nodes() if node.kind() == "ipex::restore_layout"]
    assert all("upsample" not in node.inputsAt(0).node().kind() for node in converted)


def test_antialiasing_is_atens():
    class Smaller(nn.Module):
        def forward(self, x):
            return F.interpolate(x, size=(8, 9), mode="bilinear", antialias=True)

    assert kinds(check_against_eager(Smaller(), torch.randn(1, 3, 20, 22)))["aten::_upsample_bilinear2d_aa"] == 1


def test_can_be_switched_off():
    module = torch.jit.trace(Segmenter("nearest").eval(), torch.randn(1, 3, 20, 22))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::upsample_nearest2d"] == 2
