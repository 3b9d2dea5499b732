import pytest
import torch
import torch.ao.quantization.fx._decomposed  # the ops quantized_decomposed
from torch import Tensor, nn

from support import assert_rewrites, assert_unchanged, check_against_eager, graph_ir, kinds

NUMBERS = (
    "%scale : float = prim::Constant[value=0.5]()",
    "%zero : int = prim::Constant[value=3]()",
    "%low : int = prim::Constant[value=-128]()",
    "%high : int = prim::Constant[value=127]()",
    "%seven_bits : int = prim::Constant[value=-1]()",
    "%quint8 : int = prim::Constant[value=13]()",
    "%qint8 : int = prim::Constant[value=12]()",
    "%qint32 : int = prim::Constant[value=14]()",
)


def ir(*lines: str) -> str:
    return graph_ir("%x : Tensor, %other : float", *NUMBERS, *lines, returns="%y")


def pair(scale: str = "%scale", dtype: str = "%quint8") -> str:
    return ir(
        f"%q : Tensor = aten::quantize_per_tensor(%x, {scale}, %zero, {dtype})", "%y : Tensor = aten::dequantize(%q)"
    )


@pytest.mark.parametrize(("dtype", "zero"), [("%quint8", 3), ("%qint8", 131)])
def test_a_pair_is_one_op(dtype, zero):
    found = assert_rewrites("read_rounding", pair(dtype=dtype))
    assert found.count("aten::fake_quantize_per_tensor_affine") == 1
    assert (
        found.count("aten::quantize_per_tensor") == found.count("aten::dequantize") == found.count("aten::clamp") == 0
    )
    assert f"int = prim::Constant[value={zero}]()" in found.graph


def test_numbers_are_dequantised_twice():
    found = assert_rewrites(
        "read_rounding",
        ir(
            "%q : Tensor = aten::quantize_per_tensor(%x, %scale, %zero, %quint8)",
            "%a : Tensor = aten::dequantize(%q)",
            "%b : Tensor = aten::dequantize(%q)",
            "%y : Tensor = aten::mul(%a, %b)",
        ),
    )
    assert found.count("aten::fake_quantize_per_tensor_affine") == 1


@pytest.mark.parametrize(("high", "clamps"), [("%high", 0), ("%seven_bits", 1)])
def test_fake_quantize_has_one_range(high, clamps):
    call = f"%y : Tensor = aten::fake_quantize_per_tensor_affine(%x, %scale, %zero, %low, {high})"
    if clamps:
        call = call.replace("%zero", "%low")
    found = assert_rewrites("read_rounding", ir(call))
    assert found.count("aten::fake_quantize_per_tensor_affine") == 1
    assert found.count("aten::clamp") == clamps
    assert "value=255" in found.graph


def test_what_is_canonical_stays():
    lines = ("%none : int = prim::Constant[value=0]()", "%most : int = prim::Constant[value=255]()")
    call = "%y : Tensor = aten::fake_quantize_per_tensor_affine(%x, %scale, %zero, %none, %most)"
    assert_unchanged("read_rounding", ir(*lines, call), reason=None)


def test_a_write_behind_the_numbers():
    """The rounding stands where the numbers were made."""
    found = assert_rewrites(
        "read_rounding",
        ir(
            "%q : Tensor = aten::quantize_per_tensor(%x, %scale, %zero, %quint8)",
            "%z : Tensor = aten::relu_(%x)",
            "%d : Tensor = aten::dequantize(%q)",
            "%one : int = prim::Constant[value=1]()",
            "%y : Tensor = aten::add(%d, %z, %one)",
        ),
    )
    assert found.graph.index("fake_quantize") < found.graph.index("relu_")


class Dequantized(nn.Module):
    """A weight that is stored as numbers of 8 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.quantize_per_channel(torch.randn(5, 6), torch.rand(5), torch.zeros(5), 0, torch.qint8)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight.dequantize())


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("script", [False, True])
def test_what_is_dequantised_of_a_constant_is_a_constant(script):
    found = kinds(check_against_eager(Dequantized(), torch.randn(4, 6), script=script))
    assert found["ipex::linear_run"] == 1
    assert found["aten::dequantize"] == 0


def decomposed(second: str) -> str:
    quantize = "quantized_decomposed::quantize_per_tensor(%x, %scale, %zero, %low, %high, %int8)"
    int8 = "%int8 : int = prim::Constant[value=1]()"
    more = ("%none : NoneType = prim::Constant()", "%more : float = prim::Constant[value=0.25]()")
    dequantize = f"quantized_decomposed::dequantize_per_tensor(%q, {second}, %int8, %none)"
    return ir(int8, *more, f"%q : Tensor = {quantize}", f"%y : Tensor = {dequantize}")


def test_a_decomposed_pair_is_one_op():
    found = assert_rewrites("read_rounding", decomposed("%scale, %zero, %low, %high"))
    assert found.count("aten::fake_quantize_per_tensor_affine") == 1


@pytest.mark.parametrize(
    "second", ["%more, %zero, %low, %high", "%scale, %low, %low, %high", "%scale, %zero, %zero, %high"]
)
def test_declines_a_pair_of_two_scales(second):
    reason = "it has another scale or zero point than what it reads"
    assert_unchanged("read_rounding", decomposed(second), reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (pair(scale="%other"), "its scale is not constant, or there are several"),
        (pair(dtype="%qint32"), "its numbers are QInt32, not of 8 bits"),
        (ir("%y : Tensor = aten::dequantize(%x)"), "what it reads is not rounded to numbers of 8 bits with one scale"),
        (
            ir("%y : Tensor = aten::quantize_per_tensor(%x, %scale, %zero, %quint8)"),
            "its numbers are read as such, not as the floats that they stand for",
        ),
    ],
)
def test_declines(text, reason):
    assert_unchanged("read_rounding", text, reason)
