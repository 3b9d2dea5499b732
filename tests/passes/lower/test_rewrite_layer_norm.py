import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ipex
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_same,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    kinds,
    why_aten,
)

NAME = "rewrite_layer_norm"


def test_fires():
    graph = graph_ir(
        "%x : Tensor, %s : int[], %w : Tensor?, %b : Tensor?, %e : float, %c : bool",
        "%y : Tensor = aten::layer_norm(%x, %s, %w, %b, %e, %c)",
        returns="%y",
    )
    assert assert_rewrites(NAME, graph).count("ipex::layer_norm") == 1


def test_leaves_other_ops_alone():
    assert_unchanged(NAME, graph_ir("%x : Tensor", "%y : Tensor = aten::relu(%x)", returns="%y"), reason=None)


@pytest.mark.parametrize("norm", [nn.LayerNorm(33), nn.LayerNorm(33, bias=False), nn.LayerNorm((4, 33), eps=1e-3)])
@pytest.mark.parametrize("affine", [True, False])
def test_matches_eager(tmp_path, norm, affine):
    if not affine:
        norm = nn.LayerNorm(norm.normalized_shape, norm.eps, elementwise_affine=False)
    for parameter in norm.parameters():
        nn.init.uniform_(parameter)
    x = torch.randn(2, 4, 33)
    also = (x[:1], x.transpose(0, 1).contiguous().transpose(0, 1), x * 1e-4, torch.full_like(x, 3.0), x * torch.nan)
    optimized = check_against_eager(nn.Sequential(norm, nn.Linear(33, 5)), x, also=also)
    assert kinds(optimized)["ipex::layer_norm"] == 1
    assert_round_trip(optimized, tmp_path, x)


def ours(*arguments):
    return torch.ops.ipex.layer_norm(*arguments)


def test_what_aten_computes():
    x, weight, bias = torch.randn(4, 16), torch.randn(16), torch.randn(16)
    cases = {
        "float32": (x.double(), [16], weight.double(), bias.double()),
        "finite": (x * torch.inf, [16], weight, bias),
    }
    for reason, arguments in cases.items():
        assert_same(ours(*arguments, 1e-5), F.layer_norm(*arguments))
        assert reason in str(why_aten(lambda arguments=arguments: ours(*arguments, 1e-5)))
    for rows in (x, x.t().contiguous().t()):
        assert_same(ours(rows, [16], weight, bias, 1e-5), F.layer_norm(rows, [16], weight, bias))
        assert why_aten(lambda rows=rows: ours(rows, [16], weight, bias, 1e-5)) is None
    with pytest.raises(RuntimeError, match="normalized_shape"):
        ours(x, [15], None, None, 1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(ours(x, [16], weight, bias, 1e-5), F.layer_norm(x, [16], weight, bias))


def test_gradients_are_those_of_eager():
    x, weight = torch.randn(4, 16, requires_grad=True), torch.randn(16, requires_grad=True)
    expected = torch.autograd.grad(F.layer_norm(x, [16], weight).sum(), [x, weight])
    assert_same(torch.autograd.grad(ours(x, [16], weight, None, 1e-5).sum(), [x, weight]), expected)


def test_can_be_switched_off():
    x = torch.randn(2, 8)
    optimized = ipex.jit_optimize(torch.jit.trace(nn.LayerNorm(8).eval(), x), disable=[NAME])
    assert kinds(optimized)["aten::layer_norm"] == 1
