import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ipex
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    kinds,
)

NAME = "lay_out_upsample"
NAMES = ("nearest2d", "bilinear2d", "bicubic2d")


def ir(name: str, *more: str, returns: str = "%r") -> str:
    align = "" if name == "nearest2d" else "%no, "
    return graph_ir(
        "%x : Tensor, %l : bool, %size : int[]",
        "%none : NoneType = prim::Constant()",
        "%no : bool = prim::Constant[value=0]()",
        "%yes : bool = prim::Constant[value=1]()",
        f"%y : Tensor = ipex::upsample_{name}(%x, %size, {align}%none, %yes)",
        *more,
        returns=returns,
    )


RESTORE = "%r : Tensor = ipex::restore_layout(%y, %l)"


@pytest.mark.parametrize("name", NAMES)
def test_takes_over_a_conversion(name):
    result = assert_rewrites(NAME, ir(name, RESTORE))
    assert result.count("ipex::restore_layout") == 0
    assert "%l)" in result.graph.split(f"ipex::upsample_{name}")[1].splitlines()[0]


def test_leaves_a_conversion_where_others_read_the_image():
    more = (RESTORE, "%s : Tensor = aten::relu(%y)", "%t : Tensor[] = prim::ListConstruct(%r, %s)")
    assert_unchanged(NAME, ir("nearest2d", *more, returns="%t"), reason=None)


def test_leaves_a_conversion_that_learns_of_the_layout_later():
    later = ("%rank : int = prim::Constant[value=2]()", "%k : bool = ipex::is_channels_last(%x, %rank)")
    assert_unchanged(NAME, ir("nearest2d", *later, RESTORE.replace("%l", "%k")), reason=None)


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
    assert kinds(ipex.jit_optimize(module, disable=["ipex::upsample_nearest2d"]))["aten::upsample_nearest2d"] == 2
