import pytest
import torch
from torch import Tensor, nn

from ir import CONSTANTS
from support import assert_rewrites, assert_unchanged, check_against_eager, graph_ir

DOUBLE_WEIGHT = (
    "%d : Double(8, 4, 3, 3, strides=[36, 9, 3, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
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
    result = assert_rewrites("prepack_convolution", conv2d())
    assert result.count("ipex::convolution_prepack") == result.count("ipex::convolution_run") == 1
    assert result.count("aten::conv2d") == 0


def test_declines_a_computed_weight():
    assert_unchanged("prepack_convolution", conv2d("%v"), reason="its weight is not a constant")


def test_declines_a_computed_bias():
    assert_unchanged("prepack_convolution", conv2d(bias="%v"), reason="its bias is not a constant")


@pytest.mark.parametrize("dtype", ["BFloat16", "Half"])
def test_takes_16_bit_weights(dtype):
    weight = DOUBLE_WEIGHT.replace("Double", dtype)
    assert assert_rewrites("prepack_convolution", conv2d("%d", "%none", "%zeros", weight)).count("aten::conv2d") == 0


def test_declines_a_bias_of_another_dtype():
    bias = "%b : Half(8, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
    ir = conv2d("%w", "%b", "%zeros", bias)
    assert_unchanged("prepack_convolution", ir, reason="its bias is Half, its weight is not")


def test_declines_other_dtypes():
    assert_unchanged("prepack_convolution", conv2d("%d", "%none", "%zeros", DOUBLE_WEIGHT), reason="not float32")


@pytest.mark.parametrize(("mode", "padding"), [("valid", "[0, 0]"), ("same", "[1, 1, 1, 1]")])
def test_padding_as_a_string_becomes_numbers(mode, padding):
    constant = f'%mode : str = prim::Constant[value="{mode}"]()'
    graph = assert_rewrites("prepack_convolution", conv2d("%w", "%none", "%mode", constant)).graph
    assert f"value={padding}" in graph


@pytest.mark.parametrize(
    ("padding", "reason"),
    [
        ("int[] = prim::Constant[value=[-1, 0]]()", "its geometry is not valid"),
        ("int[] = prim::Constant[value=[1, 1, 1]]()", "its geometry is not valid"),
        ('str = prim::Constant[value="circular"]()', "its padding is 'circular', which is unknown"),
    ],
)
def test_declines_a_padding_that_aten_refuses(padding, reason):
    assert_unchanged("prepack_convolution", conv2d("%w", "%none", "%p", f"%p : {padding}"), reason=reason)


def test_takes_the_form_that_tracing_records():
    ir = graph_ir(
        "%x : Tensor",
        *CONSTANTS,
        "%y : Tensor = aten::_convolution("
        "%x, %w, %none, %ones, %zeros, %ones, %false, %zeros, %one, %false, %false, %true, %true)",
        returns="%y",
    )
    assert assert_rewrites("prepack_convolution", ir).count("aten::_convolution") == 0


@pytest.mark.parametrize("op", ["conv1d", "conv3d"])
def test_declines_a_weight_of_another_rank(op):
    """Eager refuses it at the call."""
    ir = conv2d(padding="%p", weight="%w").replace("aten::conv2d", f"aten::{op}")
    for sizes in ("[1]", "[1, 1]"):
        one = f"  %p : int[] = prim::Constant[value={sizes}]()\n"
        text = ir.replace("  %y : Tensor", f"{one}  %y : Tensor").replace("%ones, %p, %ones", "%p, %p, %p")
        assert_unchanged("prepack_convolution", text, reason="its weight has 4 dimensions")


def test_declines_a_stride_of_another_rank():
    strides = "%s : int[] = prim::Constant[value=[1, 1, 1, 1]]()"
    ir = conv2d("%w", "%none", "%zeros", strides).replace("%none, %ones", "%none, %s")
    assert_unchanged("prepack_convolution", ir, reason="its geometry is not valid")


def test_declines_groups_that_do_not_divide():
    three = "%three : int = prim::Constant[value=3]()"
    ir = conv2d("%w", "%none", "%zeros", three).replace("%ones, %one)", "%ones, %three)")
    assert_unchanged("prepack_convolution", ir, reason="its groups do not divide its channels")


def test_an_image_without_a_batch_is_refused_where_eager_does():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.aten.convolution(x, self.weight, None, [1], [0], [1], False, [0], 1)

    optimized = check_against_eager(Model(), torch.randn(2, 3, 8), script=True)
    with pytest.raises(RuntimeError, match="expected an input of 3 dimensions"):
        optimized(torch.randn(3, 8))
