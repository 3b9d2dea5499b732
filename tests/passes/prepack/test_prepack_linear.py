import pytest

from support import assert_rewrites, assert_unchanged, graph_ir


def linear(dtype: str = "Float", weight: str = "%w") -> str:
    return graph_ir(
        "%x : Tensor, %v : Tensor",
        f"%w : {dtype}(5, 6, strides=[6, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
        "%none : NoneType = prim::Constant()",
        f"%y : Tensor = aten::linear(%x, {weight}, %none)",
        returns="%y",
    )


def test_fires_on_a_constant_weight():
    result = assert_rewrites("prepack_linear", linear())
    assert result.count("ipex::linear_prepack") == result.count("ipex::linear_run") == 1
    assert result.count("aten::linear") == 0


def test_declines_a_computed_weight():
    assert_unchanged("prepack_linear", linear(weight="%v"), reason="its weight is not a constant")


@pytest.mark.parametrize("dtype", ["BFloat16", "Half"])
def test_takes_16_bit_weights(dtype):
    assert assert_rewrites("prepack_linear", linear(dtype)).count("aten::linear") == 0


def test_declines_other_dtypes():
    assert_unchanged("prepack_linear", linear("Double"), reason="its weight is Double, not float32")
