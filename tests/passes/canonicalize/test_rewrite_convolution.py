from ir import CONSTANTS
from support import assert_rewrites, assert_unchanged, graph_ir

REST = "%zeros, %one, %false, %false, %true, %true"


def traced(transposed: str, stride: str = "%ones") -> str:
    return graph_ir(
        "%x : Tensor",
        *CONSTANTS,
        "%three : int[] = prim::Constant[value=[1, 1, 1]]()",
        f"%y : Tensor = aten::_convolution(%x, %w, %none, {stride}, %zeros, %ones, {transposed}, {REST})",
        returns="%y",
    )


def test_fires_on_a_traced_convolution():
    result = assert_rewrites("rewrite_convolution", traced("%false"))
    assert result.count("aten::conv2d") == 1
    assert result.count("aten::_convolution") == 0


def test_declines_transposed():
    assert_unchanged("rewrite_convolution", traced("%true"), reason="it is transposed")


def test_declines_other_ranks():
    assert_unchanged("rewrite_convolution", traced("%false", stride="%three"), reason="it is not 2-d")


def test_fires_inside_a_block():
    ir = graph_ir(
        "%x : Tensor, %c : bool",
        *CONSTANTS,
        "%r : Tensor = prim::If(%c)",
        "  block0():",
        f"    %y : Tensor = aten::_convolution(%x, %w, %none, %ones, %zeros, %ones, %false, {REST})",
        "    -> (%y)",
        "  block1():",
        "    -> (%x)",
        returns="%r",
    )
    assert assert_rewrites("rewrite_convolution", ir).count("aten::conv2d") == 1
