import pytest

from support import assert_rewrites, assert_unchanged, graph_ir

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
    assert result.count("ipex::matmul_run") == result.count("aten::mul") == result.count("aten::add") == 1
    assert result.count("aten::expand_as") == 1
    assert assert_rewrites("prepack_matmul", product("aten::baddbmm(%c, %a, %b, %one, %one)")).count("aten::mul") == 0


@pytest.mark.parametrize("call", ["aten::baddbmm(%c, %a, %b, %two, %one)", "aten::baddbmm(%c, %a, %b, %one, %n)"])
def test_declines_scales(call):
    assert_unchanged("prepack_matmul", product(call), reason="it scales what it adds")
