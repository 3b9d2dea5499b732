import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_same, assert_unchanged, graph_ir

NUMBERS = ("%one : int = prim::Constant[value=1]()", "%two : int = prim::Constant[value=2]()")


def product(call: str) -> str:
    return graph_ir("%a : Tensor, %b : Tensor, %c : Tensor, %n : int", *NUMBERS, f"%y : Tensor = {call}", returns="%y")


@pytest.mark.parametrize("kind", ["aten::matmul", "aten::bmm"])
def test_fires(kind):
    result = assert_rewrites("prepack_matmul", product(f"{kind}(%a, %b)"))
    assert result.count("ipex::matmul_prepack") == result.count("ipex::matmul_run") == 1
    assert result.count(kind) == 0


def test_takes_baddbmm_apart():
    result = assert_rewrites("prepack_matmul", product("aten::baddbmm(%c, %a, %b, %one, %two)"))
    assert result.count("ipex::matmul_run") == result.count("aten::mul") == result.count("aten::add_") == 1
    assert assert_rewrites("prepack_matmul", product("aten::baddbmm(%c, %a, %b, %one, %one)")).count("aten::mul") == 0


@pytest.mark.parametrize("call", ["aten::baddbmm(%c, %a, %b, %two, %one)", "aten::baddbmm(%c, %a, %b, %one, %n)"])
def test_declines_scales(call):
    assert_unchanged("prepack_matmul", product(call), reason="it scales what it adds")


class Products(nn.Module):
    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.baddbmm(c, a, b, alpha=2) + torch.bmm(a, b)


def test_products_of_batches_match_eager():
    a, b, c = torch.randn(2, 5, 8), torch.randn(2, 8, 4), torch.randn(4)
    traced = torch.jit.trace(Products().eval(), (a, b, c))
    optimized = ipex.jit_optimize(traced)
    for added in (c, torch.randn(2, 5, 4), torch.randn(1, 5, 1), torch.randn(5, 4).t().contiguous().t()):
        assert_same(optimized(a, b, added), Products()(a, b, added))
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(optimized(a, b, c), Products()(a, b, c), 0.02)


class Added(nn.Module):
    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.baddbmm(c, a, b)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("of_term", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("of_factors", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_what_baddbmm_adds_has_the_dtype_of_its_factors(of_term, of_factors, autocast):
    a, b, c = torch.ones(2, 5, 8), torch.ones(2, 8, 4), torch.ones(2, 5, 4)
    optimized = ipex.jit_optimize(torch.jit.trace(Added().eval(), (a, b, c)))
    given = a.to(of_factors), b.to(of_factors), c.to(of_term)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        try:
            expected = Added()(*given)
        except RuntimeError:
            with pytest.raises(RuntimeError, match="baddbmm: expected input of the batches' dtype"):
                optimized(*given)
        else:
            assert_same(optimized(*given), expected)


def test_refuses_what_eager_refuses():
    a, b, c = torch.randn(2, 5, 8), torch.randn(2, 8, 4), torch.randn(4)
    optimized = ipex.jit_optimize(torch.jit.trace(Products().eval(), (a, b, c)))
    for wrong in ((a[:1], b, c), (a, b[:1], c), (a[0], b[0], c), (a, b, torch.randn(3, 2, 5, 4))):
        with pytest.raises((RuntimeError, IndexError)):
            Products()(*wrong)
        with pytest.raises((RuntimeError, IndexError)):
            optimized(*wrong)
