import pytest
import torch
from torch import Tensor, nn

from ir import CONSTANTS, PACKED
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds


@pytest.mark.parametrize("spelling", ["aten::relu", "aten::relu_"])
def test_fires_after_conv2d(spelling):
    ir = graph_ir("%x : Tensor", *PACKED, f"%z : Tensor = {spelling}(%y)", returns="%z")
    result = assert_rewrites("fuse_relu", ir)
    assert result.count(spelling) == 0
    assert 'value=["relu"]' in result.graph
    assert result.count("ipex::conv2d_run") == 1


def test_declines_second_reader():
    ir = graph_ir("%x : Tensor", *PACKED, "%z : Tensor = aten::relu(%y)", returns="%y, %z")
    assert_unchanged("fuse_relu", ir, reason="another reader")


def test_says_nothing_where_there_is_no_packed_op():
    ir = graph_ir("%x : Tensor", *CONSTANTS, "%z : Tensor = aten::relu(%x)", returns="%z")
    assert_unchanged("fuse_relu", ir, reason=None)


def test_does_not_cross_a_block():
    ir = graph_ir(
        "%x : Tensor, %c : bool",
        *PACKED,
        "%r : Tensor = prim::If(%c)",
        "  block0():",
        "    %z : Tensor = aten::relu(%y)",
        "    -> (%z)",
        "  block1():",
        "    -> (%x)",
        returns="%r",
    )
    assert_unchanged("fuse_relu", ir, reason=None)


def test_fires_inside_a_block():
    inner = [f"    {line}" for line in (*PACKED[len(CONSTANTS) :], "%z : Tensor = aten::relu(%y)", "-> (%z)")]
    ir = graph_ir(
        "%x : Tensor, %c : bool",
        *CONSTANTS,
        "%r : Tensor = prim::If(%c)",
        "  block0():",
        *inner,
        "  block1():",
        "    -> (%x)",
        returns="%r",
    )
    assert assert_rewrites("fuse_relu", ir).count("aten::relu") == 0


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(("anchor", "shape"), [(nn.Conv2d(3, 20, 3), (2, 3, 8, 8)), (nn.Linear(8, 20), (4, 8))])
def test_matches_eager(tmp_path, anchor, shape, inplace):
    x = torch.randn(shape)
    optimized = check_against_eager(nn.Sequential(anchor, nn.ReLU(inplace)), x)
    assert not {"aten::relu", "aten::relu_"} & kinds(optimized).keys()
    assert_round_trip(optimized, tmp_path, x)


@pytest.mark.parametrize(("anchor", "shape"), [(nn.Conv2d(3, 20, 3), (2, 3, 8, 8)), (nn.Linear(8, 20), (4, 8))])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_keeps_nan_and_infinity(anchor, shape, value):
    x = torch.randn(shape)
    x.view(-1)[5] = value
    check_against_eager(nn.Sequential(anchor, nn.ReLU()), x)


class BeforeAndAfter(nn.Module):
    """The value before relu is returned too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        return y, torch.relu(y)


def test_a_second_reader_keeps_its_value():
    check_against_eager(BeforeAndAfter(), torch.randn(1, 3, 8, 8))
