import torch
from torch import nn

import ipex
from support import assert_unchanged, graph_ir


def test_gives_a_reason_for_an_anchor_that_no_pass_knows():
    ir = graph_ir("%a : Tensor, %b : Tensor", "%y : Tensor = aten::mv(%a, %b)", returns="%y")
    assert_unchanged("explain_leftovers", ir, reason="no prepacked form")


def test_gives_a_reason_for_an_activation_without_packed_op():
    ir = graph_ir("%x : Tensor", "%y : Tensor = aten::relu(%x)", returns="%y")
    assert_unchanged("explain_leftovers", ir, reason="no packed op could take it")


def test_says_nothing_of_what_needs_no_packed_op():
    ir = graph_ir("%x : Tensor", "%y : Tensor = aten::t(%x)", returns="%y")
    assert_unchanged("explain_leftovers", ir, reason=None)


def test_every_convolution_left_in_aten_has_a_reason():
    model = nn.Sequential(nn.Conv2d(3, 4, 3).double(), nn.ConvTranspose2d(4, 4, 3).double(), nn.GELU()).eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, torch.randn(1, 3, 8, 8, dtype=torch.float64)))
    declined = " ".join(str(d) for d in ipex.explain(optimized).declined)
    for module in ("in 0 ", "in 1 ", "in 2 "):
        assert module in declined
