import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "rewrite_pad"
CONSTANTS = (
    "%none : NoneType = prim::Constant()",
    "%no : bool = prim::Constant[value=0]()",
    "%one : int = prim::Constant[value=1]()",
    '%mode : str = prim::Constant[value="constant"]()',
)
PAD = "%y : Tensor = aten::pad(%x, %pads, %mode, %none)"
VIEW = "%v : Tensor = aten::reshape(%y, %pads)"
SUM = "%s : Tensor = aten::sum(%v, %pads, %no, %none)"


def ir(*lines: str, returns: str = "%s") -> str:
    return graph_ir("%x : Tensor, %pads : int[], %number : Scalar", *CONSTANTS, *lines, returns=returns)


def may_be_input(graph: str) -> bool:
    (pad,) = [line for line in graph.splitlines() if "ipex::pad" in line]
    name = pad.split("(")[1].split(")")[0].split(", ")[-1]
    return f"{name} : bool = prim::Constant[value=1]" in graph


def test_fires():
    result = assert_rewrites(NAME, ir(PAD, VIEW, SUM))
    assert result.count("aten::pad") == 0
    assert may_be_input(result.graph)
    constant = "%y : Tensor = aten::constant_pad_nd(%x, %pads, %one)"
    assert assert_rewrites(NAME, ir(constant, VIEW, SUM)).count("ipex::pad") == 1


@pytest.mark.parametrize(
    ("lines", "returns"),
    [
        ((PAD,), "%y"),
        ((PAD, VIEW), "%v"),
        ((PAD, VIEW, SUM), "%s, %y"),
        ((PAD, VIEW, SUM, "%w : Tensor = aten::relu_(%v)"), "%s"),
        ((PAD, VIEW, "%w : Tensor = aten::relu_(%x)", SUM), "%s"),
        (
            (PAD, VIEW, SUM, "%l : Tensor[] = prim::ListConstruct(%y)", "%z : Tensor[] = aten::broadcast_tensors(%l)"),
            "%s, %z",
        ),
    ],
)
def test_a_result_that_others_can_tell_stays_one(lines, returns):
    result = assert_rewrites(NAME, ir(*lines, returns=returns))
    assert not may_be_input(result.graph)


def test_what_is_joined_is_copied_anyway():
    lines = ("%l : Tensor[] = prim::ListConstruct(%y, %x)", "%z : Tensor = aten::cat(%l, %one)")
    assert may_be_input(assert_rewrites(NAME, ir(PAD, *lines, returns="%z")).graph)


def test_declines_other_numbers():
    text = ir("%y : Tensor = aten::constant_pad_nd(%x, %pads, %number)", VIEW, SUM)
    assert_unchanged(NAME, text, reason="what it pads with is not a constant")


class Windows(nn.Module):
    """Images of any size, cut into windows of 4 pixels, as Swin Transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[1], x.shape[2]
        y = F.pad(self.linear(x), (0, 0, 0, -width % 4, 0, -height % 4))
        y = y.view(x.shape[0], y.shape[1] // 4, 4, y.shape[2] // 4, 4, 6).permute(0, 1, 3, 2, 4, 5)
        return self.linear(y.reshape(-1, 16, 6)).softmax(-1)


def test_matches_eager(tmp_path):
    x = torch.randn(2, 8, 12, 6)
    optimized = check_against_eager(Windows(), x, script=True, also=(torch.randn(1, 7, 9, 6), torch.randn(1, 4, 3, 6)))
    assert kinds(optimized)["ipex::pad"] == 1
    assert_round_trip(optimized, tmp_path, x)


class Itself(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return F.pad(x, (0, 0)), F.pad(x, (0, 0)).reshape(x.shape)


def test_what_the_caller_gets_is_not_what_it_gave():
    x = torch.randn(3, 4)
    optimized = check_against_eager(Itself(), x)
    assert all(y.data_ptr() != x.data_ptr() for y in optimized(x))


def test_can_be_switched_off():
    module = torch.jit.script(Windows().eval())
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["ipex::pad"] == 0
