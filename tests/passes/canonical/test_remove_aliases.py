import pytest
import torch
from torch import nn

import ipex
from support import assert_rewrites, assert_unchanged, check_against_eager, graph_ir

NAME = "remove_aliases"


def ir(*lines: str, returns: str = "%y") -> str:
    return graph_ir("%x : Tensor", "%n0 : int = prim::Constant[value=0]()", *lines, returns=returns)


ALIAS = "%a : Tensor = aten::alias(%x)"


def test_fires():
    text = assert_rewrites(NAME, ir(ALIAS, "%b : Tensor = aten::alias(%a)", "%y : Tensor = aten::relu(%b)"))
    assert text.count("aten::alias") == 0


@pytest.mark.parametrize("overwrites", ["aten::relu_(%a)", "aten::relu_(%x)"])
def test_fires_where_either_is_overwritten(overwrites):
    reads = ("%b : Tensor = aten::neg(%a)", "%y : Tensor = aten::add(%b, %x, %n0)")
    text = ir(ALIAS, f"%w : Tensor = {overwrites}", *reads)
    assert assert_rewrites(NAME, text).count("aten::alias") == 0


@pytest.mark.parametrize(
    "lines",
    [
        ("%y : Tensor = aten::alias(%x)",),  # returned: not the caller's own tensor
        (ALIAS, "%t : Tensor = aten::t_(%a)", "%y : Tensor = aten::neg(%x)"),
        (ALIAS, "%t : Tensor = aten::t_(%x)", "%y : Tensor = aten::neg(%a)"),
    ],
)
def test_leaves_a_tensor_that_is_one_of_its_own(lines):
    assert_unchanged(NAME, ir(*lines), reason=None)


class Aliases(nn.Module):
    def forward(self, x):
        y = torch.ops.aten.alias(x)
        return torch.relu(y), torch.ops.aten.alias(y)


def test_matches_eager():
    model, x = Aliases().eval(), torch.randn(3, 4)
    check_against_eager(model, x)
    result = ipex.jit_optimize(model, x)(x)[1]
    assert result is not x
    assert result.data_ptr() == x.data_ptr()
