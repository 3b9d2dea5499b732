import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "fuse_grid_mask"
INPUTS = "%q : Tensor, %k : Tensor, %v : Tensor, %h : Tensor, %w : Tensor, %sizes : int[], %t : Tensor"
LINES = (
    "%rows : Tensor = aten::unsqueeze(%h, %last)",
    "%columns : Tensor = aten::unsqueeze(%w, %before)",
    "%sum : Tensor = aten::add(%rows, %columns, %one)",
    "%mask : Tensor = aten::reshape(%sum, %sizes)",
)
CALL = "%y : Tensor = aten::scaled_dot_product_attention(%q, %k, %v, %mask, %zero, %no, %none, %no)"
STEPS = (
    '%steps : str[] = prim::Constant[value=["matmul", "mul", "masked_fill", "add", "softmax", "matmul"]]()',
    "%operands : Tensor[] = prim::ListConstruct(%t, %t, %mask)",
    "%numbers : float[] = prim::ListConstruct(%zero, %minus)",
    "%y : Tensor = ipex::attention(%q, %k, %v, %steps, %operands, %numbers, %no)",
)


def grid_ir(*call: str, old: str = "", new: str = "", returns: str = "%y") -> str:
    text = "\n".join((*LINES, *call))
    assert old in text
    return graph_ir(
        INPUTS,
        "%one : int = prim::Constant[value=1]()",
        "%two : int = prim::Constant[value=2]()",
        "%last : int = prim::Constant[value=-1]()",
        "%before : int = prim::Constant[value=-2]()",
        "%zero : float = prim::Constant[value=0.]()",
        "%minus : float = prim::Constant[value=-1.]()",
        "%no : bool = prim::Constant[value=0]()",
        "%none : NoneType = prim::Constant()",
        *(text.replace(old, new, 1) if old else text).splitlines(),
        returns=returns,
    )


def test_fires():
    result = assert_rewrites(NAME, grid_ir(CALL))
    assert re.search(r"ipex::attention_in_a_grid\(%q, %k, %v, %\d+, %\d+, %\d+, ", result.graph)
    assert result.count("ipex::shape_of_sum") == 1
    assert result.count("aten::add") + result.count("scaled_dot_product") == 0


def test_fires_on_a_step():
    result = assert_rewrites(NAME, grid_ir(*STEPS))
    assert '["matmul", "mul", "masked_fill", "add_sides", "softmax", "matmul"]' in result.graph
    assert re.search(r"prim::ListConstruct\(%t, %t, %\d+, %\d+, %\d+\)", result.graph)
    assert result.count("aten::add") == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("aten::unsqueeze(%h, %last)", "aten::relu(%h)"),
        ("aten::unsqueeze(%w, %before)", "aten::relu(%w)"),
        ("%columns, %one)", "%columns, %two)"),
        ("aten::reshape(%sum, %sizes)", "aten::relu(%sum)"),
    ],
)
@pytest.mark.parametrize("call", [(CALL,), STEPS], ids=["op", "steps"])
def test_leaves_other_masks(call, old, new):
    assert_unchanged(NAME, grid_ir(*call, old=old, new=new), reason=None)


@pytest.mark.parametrize("call", [(CALL,), STEPS], ids=["op", "steps"])
def test_declines(call):
    for returns in ("%y, %mask", "%y, %sum"):
        assert_unchanged(NAME, grid_ir(*call, returns=returns), reason="its mask has another reader")
    written = grid_ir(*call, old=LINES[3], new=f"{LINES[3]}\n%z : Tensor = aten::relu_(%h)")
    assert_unchanged(NAME, written, reason="something is overwritten before its mask is read")


class Positions(nn.Module):
    """Attention over an image of `height` x `width` pixels, which learns where a pixel lies to another."""

    def __init__(self, spelling: str, height: int = 4, width: int = 3) -> None:
        super().__init__()
        self.spelling, self.height, self.width = spelling, height, width
        self.rows, self.columns = nn.Parameter(torch.randn(height, 8)), nn.Parameter(torch.randn(width, 8))

    def mask(self, q: Tensor) -> Tensor:
        h, w = F.linear(q, self.rows), F.linear(q, self.columns)
        if self.spelling == "columns first":
            return w[..., None, :] + h[..., :, None]
        if self.spelling == "expanded":
            shape = (*q.shape[:-1], self.height, self.width)
            return h[..., :, None].expand(shape) + w[..., None, :].expand(shape)
        return h[..., :, None] + w[..., None, :]

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = self.mask(q).reshape(q.size(0), q.size(1), q.size(2), k.size(2))
        if self.spelling == "steps":
            return ((q @ k.transpose(-1, -2)) * 0.3 + mask).softmax(-1) @ v
        return F.scaled_dot_product_attention(q, k, v, mask)


def tokens(queries: int = 12, keys: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(2, 3, queries, 8), torch.randn(2, 3, keys, 8), torch.randn(2, 3, keys, 8)


SPELLINGS = ("op", "columns first", "expanded", "steps")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_matches_eager(tmp_path, spelling):
    module, inputs = Positions(spelling), tokens()
    optimized = check_against_eager(module, *inputs, also=(tokens(5), tokens(1), tokens(200)))
    assert kinds(optimized)["ipex::shape_of_sum"] == 1
    assert not kinds(optimized)["aten::add"]
    assert_round_trip(optimized, tmp_path, *inputs)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_as_without_it(spelling):
    """The sums are the same numbers: not one bit differs."""
    inputs = tokens(70)
    module = Positions(spelling).eval()
    with torch.no_grad():
        results = [ipex.jit_optimize(module, inputs, disable=names)(*inputs) for names in ([], [NAME])]
    assert torch.equal(*results)


@pytest.mark.parametrize("mode", [ipex.FP32MathMode.FP32, ipex.FP32MathMode.BF32])
def test_keeps_its_math_mode(mode):
    inputs, module = tokens(70), Positions("op").eval()
    optimized = ipex.jit_optimize(module, inputs, fp32_math_mode=mode)
    tolerance = 1e-5 if mode == ipex.FP32MathMode.FP32 else 4e-2
    with torch.no_grad():
        torch.testing.assert_close(optimized(*inputs), module(*inputs), rtol=0, atol=tolerance)
