"""Each row of the table, by itself; the files beside this one have models of each kind."""

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ipex
from support import assert_rewrites, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "lower_ops"
TABLE = Path(__file__).parents[3] / "passes/lower/lower_ops.cpp"
INPUTS = (
    "%x : Tensor, %w : Tensor, %k : Tensor, %list : Tensor[], %i : int, %ints : int[], %e : float, %b : bool, "
    "%layout : bool, %scale : float[]"
)
CONSTANTS = (
    "%none : NoneType = prim::Constant()",
    "%true : bool = prim::Constant[value=1]()",
    "%false : bool = prim::Constant[value=0]()",
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
    "%double : int = prim::Constant[value=7]()",
    "%factor : float = prim::Constant[value=2.]()",
    "%dims : int[] = prim::Constant[value=[2, 3]]()",
    "%weight : Float(4, 4, 1, 1, strides=[4, 1, 1, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
)
CHANNELS_LAST = "%c : Tensor = ipex::to_channels_last(%w, %two)"
# The op that a row is for, what it is given, and what takes its place.
FIRES = (
    ("cat", "%list, %i", "cat"),
    ("roll", "%x, %ints, %ints", "roll"),
    ("embedding", "%w, %x, %i, %false, %false", "look_up"),
    ("addmm", "%x, %w, %k, %i, %e", "addmm"),
    ("scaled_dot_product_attention", "%x, %w, %k, %none, %e, %b, %none, %b", "scaled_dot_product_attention"),
    ("softmax", "%x, %one, %none", "softmax"),
    ("softmax", "%x, %i, %none", "softmax"),
    ("log_softmax", "%x, %i, %none", "log_softmax"),
    ("layer_norm", "%x, %ints, %w, %k, %e, %b", "layer_norm"),
    ("conv2d.", "%x, %w, %none, %ints, %ints, %ints, %i", "unpacked_convolution"),
    ("max_pool2d", "%x, %ints, %ints, %ints, %ints, %b", "max_pool2d"),
    ("max_pool3d", "%x, %ints, %ints, %ints, %ints, %b", "max_pool3d"),
    ("avg_pool1d", "%x, %ints, %ints, %ints, %b, %b", "avg_pool1d"),
    ("avg_pool2d", "%x, %ints, %ints, %ints, %b, %b, %none", "avg_pool2d"),
    ("avg_pool3d", "%x, %ints, %ints, %ints, %b, %b, %none", "avg_pool3d"),
    ("adaptive_avg_pool2d", "%c, %ints", "adaptive_avg_pool2d"),
    ("mean.dim", "%c, %dims, %b, %none", "mean"),
    ("sum.dim_IntList", "%x, %dims, %b, %none", "sum"),
    ("amax", "%x, %dims, %b", "amax"),
    ("max.dim", "%x, %i, %b", "max_values"),
    ("linalg_vector_norm", "%x, %two, %dims, %b, %none", "vector_norm"),
    ("norm.ScalarOpt_dim", "%x, %two, %dims, %b", "vector_norm"),
    ("var.correction", "%x, %dims, %two, %b", "var"),
    ("var.correction", "%x, %dims, %none, %b", "var"),
    ("std.correction", "%x, %dims, %two, %b", "std"),
    ("std.correction", "%x, %dims, %none, %b", "std"),
    ("var.dim", "%x, %dims, %false, %b", "var"),
    ("var.dim", "%x, %dims, %true, %b", "var"),
    ("std.dim", "%x, %dims, %false, %b", "std"),
    ("std.dim", "%x, %dims, %true, %b", "std"),
    ("upsample_nearest2d.vec", "%x, %none, %scale", "upsample_nearest2d"),
    ("upsample_bilinear2d.vec", "%x, %ints, %b, %none", "upsample_bilinear2d"),
    ("upsample_bicubic2d.vec", "%x, %none, %b, %scale", "upsample_bicubic2d"),
    ("upsample_nearest2d", "%x, %ints, %none, %none", "upsample_nearest2d"),
    ("upsample_bilinear2d", "%x, %ints, %b, %none, %none", "upsample_bilinear2d"),
    ("upsample_bicubic2d", "%x, %ints, %b, %none, %none", "upsample_bicubic2d"),
    ("new_zeros", "%x, %ints, %none, %none, %none, %false", "new_full"),
    ("new_ones", "%x, %ints, %none, %none, %none, %none", "new_full"),
    ("new_full", "%x, %ints, %two, %none, %none, %none, %false", "new_full"),
    ("zeros_like", "%x, %none, %none, %none, %false, %none", "full_like"),
    ("ones_like", "%x, %none, %none, %none, %false, %none", "full_like"),
    ("full_like", "%x, %two, %none, %none, %none, %false, %none", "full_like"),
)
NO_DIMENSIONS, OTHER_DTYPE = "it does not say which dimensions", "it gives a dtype of its own"
NOT_EUCLIDEAN, NO_CONSTANT = "it is not the Euclidean norm", "its correction is no constant"
OTHER_OPTIONS, FACTORS = "it asks for another dtype, device or layout", "it gives a factor for each dimension"
NOT_OF_IMAGES = "it does not average whole images"
DECLINES = (
    ("adaptive_avg_pool2d", "%x, %ints", "no image is channels-last"),
    ("mean", "%x, %dims, %b, %none", "no image is channels-last"),
    ("mean", "%x, %none, %b, %none", NOT_OF_IMAGES),
    ("mean", "%x, %ints, %b, %none", NOT_OF_IMAGES),
    ("conv2d", "%x, %weight, %none, %ints, %ints, %ints, %i", None),
    ("linalg_vector_norm", "%x, %one, %dims, %b, %none", NOT_EUCLIDEAN),
    ("linalg_vector_norm", "%x, %two, %none, %b, %none", NO_DIMENSIONS),
    ("linalg_vector_norm", "%x, %two, %dims, %b, %double", OTHER_DTYPE),
    ("norm", "%x, %one, %dims, %b", NOT_EUCLIDEAN),
    ("var", "%x, %none, %false, %b", NO_DIMENSIONS),
    ("std", "%x, %dims, %b, %b", NO_CONSTANT),
    ("sum", "%x, %none, %b, %none", NO_DIMENSIONS),
    ("sum", "%x, %dims, %b, %double", OTHER_DTYPE),
    ("upsample_nearest2d", "%x, %ints, %factor, %factor", FACTORS),
    ("upsample_bilinear2d", "%x, %ints, %b, %factor, %factor", FACTORS),
    ("upsample_bicubic2d", "%x, %ints, %b, %factor, %factor", FACTORS),
    ("new_zeros", "%x, %ints, %double, %none, %none, %false", OTHER_OPTIONS),
    ("new_ones", "%x, %ints, %double, %none, %none, %none", OTHER_OPTIONS),
    ("new_full", "%x, %ints, %two, %double, %none, %none, %false", OTHER_OPTIONS),
    ("zeros_like", "%x, %double, %none, %none, %false, %none", OTHER_OPTIONS),
    ("ones_like", "%x, %double, %none, %none, %false, %none", OTHER_OPTIONS),
    ("full_like", "%x, %two, %double, %none, %none, %false, %none", OTHER_OPTIONS),
)


def ir(op: str, arguments: str, *more: str, returns: str = "%y") -> str:
    results = "%y : Tensor, %indices : Tensor" if op.startswith("max.") else "%y : Tensor"
    line = f"{results} = aten::{op.partition('.')[0]}({arguments})"
    converted = (CHANNELS_LAST,) if "%c," in arguments else ()
    return graph_ir(INPUTS, *CONSTANTS, *converted, line, *more, returns=returns)


@pytest.mark.parametrize(("op", "arguments", "ours"), FIRES)
def test_fires(op, arguments, ours):
    result = assert_rewrites(NAME, ir(op, arguments))
    assert result.count(f"ipex::{ours}") == 1
    assert result.count(f"aten::{op.partition('.')[0]}") == 0


def test_every_row_fires():
    (others,) = re.findall(r"^std::vector<Row> others.*?^}", TABLE.read_text(), re.MULTILINE | re.DOTALL)
    assert set(re.findall(r'"%y.* = aten::([\w.]+)\(', others)) == {op for op, *_ in FIRES}


@pytest.mark.parametrize(("op", "arguments", "reason"), DECLINES)
def test_declines(op, arguments, reason):
    assert_unchanged(NAME, ir(op, arguments), reason=reason)


def test_declines_indices_that_are_read():
    graph = ir("max.dim", "%x, %i, %b", returns="%y, %indices")
    assert_unchanged(NAME, graph, reason="somebody reads its indices")


@pytest.mark.parametrize("dims", ["[2, 3]", "[3, 2]", "[-2, -1]", "[-1, -2]"])
@pytest.mark.parametrize("keepdim", ["%true", "%false"])
def test_fires_for_means_of_images(dims, keepdim):
    graph = ir("mean", f"%c, %dims, {keepdim}, %none").replace("[2, 3]", dims)
    assert assert_rewrites(NAME, graph).count("ipex::mean") == 1


@pytest.mark.parametrize("dims", ["[1]", "[3]", "[1, 2]", "[2, -1]", "[1, 2, 3]"])
def test_declines_other_means(dims):
    graph = ir("mean", "%c, %dims, %true, %none").replace("[2, 3]", dims)
    assert_unchanged(NAME, graph, reason="it does not average whole images")


@pytest.mark.parametrize("op", ["relu(%x)", "flip(%x, %ints)", "matmul(%x, %w)"])
def test_leaves_other_ops(op):
    assert_unchanged(NAME, ir(op.partition("(")[0], op.partition("(")[2][:-1]), reason=None)


@pytest.mark.parametrize("written", ["%x", "%y"])
def test_fires_where_something_is_overwritten_afterwards(written):
    """The gradient is that of aten's op, and the kernel has read what it needs."""
    write = f"%z : Tensor = aten::relu_({written})"
    for op, arguments, ours in (("softmax", "%x, %i, %none", "softmax"), ("amax", "%x, %dims, %b", "amax")):
        assert assert_rewrites(NAME, ir(op, arguments, write)).count(f"ipex::{ours}") == 1


class Reflected(nn.Module):
    """A padding that is given by its name: another overload, which no row is for."""

    def forward(self, x, w):
        return F.conv2d(x, w, None, padding="same")


def test_other_overloads_are_left():
    x, w = torch.randn(2, 6, 9, 9), torch.randn(6, 6, 3, 3)
    assert kinds(check_against_eager(Reflected(), x, w, script=True))["aten::conv2d"] == 1


class Many(nn.Module):
    def forward(self, x):
        return torch.cat([torch.softmax(x, 1), torch.roll(x, 1, 0)])


def test_one_op_can_be_switched_off():
    x = torch.randn(4, 6)
    module = torch.jit.trace(Many().eval(), x)
    found = kinds(ipex.jit_optimize(module, disable=["ipex::roll"]))
    assert (found["ipex::cat"], found["ipex::softmax"], found["aten::roll"]) == (1, 1, 1)
    found = kinds(ipex.jit_optimize(module, disable=[NAME]))
    assert (found["aten::cat"], found["aten::softmax"], found["aten::roll"]) == (1, 1, 1)


def test_an_unknown_op_is_an_error():
    with pytest.raises(RuntimeError, match="got 'ipex::rol'"):
        ipex.jit_optimize(torch.jit.trace(Many().eval(), torch.randn(4, 6)), disable=["ipex::rol"])
