from ir import CONSTANTS
from support import assert_rewrites, assert_unchanged, graph_ir

HALF_WEIGHT = (
    "%h : Half(8, 4, 3, 3, strides=[36, 9, 3, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
)


def conv2d(weight: str = "%w", bias: str = "%none", padding: str = "%zeros", *extra: str) -> str:
    return graph_ir(
        "%x : Tensor, %v : Tensor",
        *CONSTANTS,
        *extra,
        f"%y : Tensor = aten::conv2d(%x, {weight}, {bias}, %ones, {padding}, %ones, %one)",
        returns="%y",
    )


def test_fires_on_a_constant_weight():
    result = assert_rewrites("prepack_conv2d", conv2d())
    assert result.count("ipex::conv2d_prepack") == result.count("ipex::conv2d_run") == 1
    assert result.count("aten::conv2d") == 0


def test_declines_a_computed_weight():
    assert_unchanged("prepack_conv2d", conv2d("%v"), reason="its weight is not a constant")


def test_declines_a_computed_bias():
    assert_unchanged("prepack_conv2d", conv2d(bias="%v"), reason="its bias is not a constant")


def test_declines_other_dtypes():
    assert_unchanged("prepack_conv2d", conv2d("%h", "%none", "%zeros", HALF_WEIGHT), reason="not float32")


def test_declines_padding_as_a_string():
    same = '%same : str = prim::Constant[value="same"]()'
    assert_unchanged("prepack_conv2d", conv2d("%w", "%none", "%same", same), reason="its padding is 'same'")
