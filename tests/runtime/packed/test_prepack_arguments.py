"""The prepack ops are public, like all ops: whatever they are given is packed or refused with a message."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ipex  # noqa: F401

WEIGHT = torch.randn(8, 4, 3, 3)
CONVOLUTION = {
    "weight": WEIGHT,
    "bias": None,
    "stride": [1, 1],
    "padding": [0, 0],
    "dilation": [1, 1],
    "groups": 1,
    "transposed": False,
    "output_padding": [0, 0],
    "post_ops": [],
    "folded_scale": None,
    "folded_shift": None,
    "math_mode": None,
}
LINEAR = {
    "weight": torch.randn(8, 4),
    "bias": None,
    "post_ops": [],
    "folded_scale": None,
    "folded_shift": None,
    "math_mode": None,
}
HUGE = 2**62
WEIGHTS = "weight to be a plain CPU tensor of float32, bfloat16 or float16"
OUT_OF_RANGE, WITHOUT_MEMORY = "between -2147483648 and 2147483647, got", "to have memory for its sizes"


def without_memory(*sizes: int) -> Tensor:
    tensor = torch.randn(*sizes)
    tensor.untyped_storage().resize_(4)
    return tensor


BAD_CONVOLUTIONS = [
    ({"groups": 0}, "at least 1 group, got 0"),
    ({"groups": -1}, "at least 1 group, got -1"),
    ({"groups": HUGE}, OUT_OF_RANGE),
    ({"groups": 3}, "divisible by groups, got 8 and 3"),
    ({"stride": [0, 0]}, "2 integers of at least 1, and less than 2\\^31, in stride, got \\[0, 0\\]"),
    ({"stride": []}, "1 or 2 integers in stride"),
    ({"stride": [1] * 9}, "1 or 2 integers in stride"),
    ({"stride": [HUGE, HUGE]}, OUT_OF_RANGE),
    ({"padding": []}, "1 or 2 integers in padding"),
    ({"padding": [1, 1, 1]}, "1 or 2 integers in padding"),
    ({"padding": [0] * 9}, "1 or 2 integers in padding"),
    ({"padding": [-1, -1]}, "2 integers of at least 0, and less than 2\\^31, in padding"),
    ({"padding": [HUGE, HUGE]}, OUT_OF_RANGE),
    ({"dilation": []}, "1 or 2 integers in dilation"),
    ({"dilation": [-1, -1]}, "2 integers of at least 1, and less than 2\\^31, in dilation"),
    ({"dilation": [HUGE]}, OUT_OF_RANGE),
    ({"output_padding": []}, "1 or 2 integers in output_padding"),
    ({"output_padding": [-3, -3], "transposed": True}, "2 integers of at least 0"),
    ({"weight": torch.randn(4)}, "a weight of 3 to 5 dimensions, got \\[4\\]"),
    ({"weight": torch.tensor(1.0)}, "a weight of 3 to 5 dimensions, got \\[\\]"),
    ({"weight": torch.randn(1, 1, 1, 1, 1, 1)}, "a weight of 3 to 5 dimensions"),
    ({"weight": torch.randn(0, 4, 3, 3)}, f"{WEIGHTS} .any, any, any, any., got"),
    ({"weight": torch.empty(8, 4, 3, 3, device="meta")}, f"{WEIGHTS} .any, any, any, any., got"),
    ({"weight": WEIGHT.to_sparse()}, f"{WEIGHTS} .any, any, any, any., got"),
    ({"weight": without_memory(8, 4, 3, 3)}, WITHOUT_MEMORY),
    ({"bias": without_memory(8)}, WITHOUT_MEMORY),
    ({"bias": torch.randn(7)}, "bias to be a plain CPU tensor of float32 .8., got"),
    ({"folded_scale": torch.randn(8)}, "folded_scale, folded_shift and bias together"),
    ({"post_ops": ["warp"]}, "a post-op that this version knows, got 'warp'"),
    ({"post_ops": ["leaky_relu("]}, "1 arguments for post-op 'leaky_relu'"),
    ({"math_mode": 7}, "math mode 0 \\(FP32\\) or 2 \\(BF32\\), got 7"),
]


@pytest.mark.parametrize(("change", "message"), BAD_CONVOLUTIONS)
def test_convolutions(change, message):
    with pytest.raises(RuntimeError, match=message):
        torch.ops.ipex.convolution_prepack(*{**CONVOLUTION, **change}.values())


def test_an_output_padding_that_aten_refuses_is_an_error_of_the_call():
    arguments = {**CONVOLUTION, "transposed": True, "output_padding": [50, 50]}
    context = torch.ops.ipex.convolution_prepack(*arguments.values())
    with pytest.raises(RuntimeError, match="output padding must be smaller"):
        torch.ops.ipex.convolution_run(torch.randn(1, 8, 5, 5), context, [], True)


BAD_LINEARS = [
    ({"weight": torch.randn(4)}, f"{WEIGHTS} .any, any., got"),
    ({"weight": torch.tensor(1.0)}, f"{WEIGHTS} .any, any., got"),
    ({"weight": torch.randn(2, 2, 2)}, f"{WEIGHTS} .any, any., got"),
    ({"weight": torch.randn(0, 4)}, f"{WEIGHTS} .any, any., got"),
    ({"weight": torch.randn(8, 4).double()}, f"{WEIGHTS} .any, any., got"),
    ({"weight": without_memory(8, 4)}, WITHOUT_MEMORY),
    ({"bias": torch.randn(1, 8)}, "bias to be a plain CPU tensor of float32 .8., got"),
    ({"folded_shift": torch.randn(8), "bias": torch.randn(8)}, "folded_scale, folded_shift and bias together"),
    ({"post_ops": [""]}, "a post-op that this version knows, got ''"),
    ({"math_mode": 1}, "math mode 0 \\(FP32\\) or 2 \\(BF32\\), got 1"),
]


@pytest.mark.parametrize(("change", "message"), BAD_LINEARS)
def test_linears(change, message):
    with pytest.raises(RuntimeError, match=message):
        torch.ops.ipex.linear_prepack(*{**LINEAR, **change}.values())


def parameters(gates: int, *, layers: int = 1) -> list[Tensor]:
    return [
        torch.randn(gates * 5, 5),
        torch.randn(gates * 5, 5),
        torch.randn(gates * 5),
        torch.randn(gates * 5),
    ] * layers


BAD_RECURRENTS = [
    (lambda p: ([], True, 1), "4 or 5 weights for each of 1 layers"),
    (lambda p: (p, True, 0), "4 or 5 weights for each of 0 layers"),
    (lambda p: (p, True, -1), "4 or 5 weights for each of -1 layers"),
    (lambda p: (p, True, HUGE), OUT_OF_RANGE),
    (lambda p: (p[:3], True, 1), "4 or 5 weights"),
    (lambda p: ([torch.tensor(1.0), *p[1:]], True, 1), "weight_ih_l0 and weight_hh_l0 with 2 dimensions"),
    (lambda p: ([torch.randn(7, 5), *p[1:]], True, 1), "weight_ih_l0 to be a plain CPU tensor of float32"),
    (lambda p: ([p[0], torch.randn(0, 5), *p[2:]], True, 1), "weight_hh_l0 to be a plain CPU tensor of float32"),
    (lambda p: ([p[0].double(), *p[1:]], True, 1), "weight_ih_l0 to be a plain CPU tensor of float32"),
    (lambda p: ([without_memory(*p[0].shape), *p[1:]], True, 1), WITHOUT_MEMORY),
    (lambda p: ([*p[:3], without_memory(*p[3].shape)], True, 1), WITHOUT_MEMORY),
]


@pytest.mark.parametrize(("op", "gates"), [("lstm_prepack", 4), ("gru_prepack", 3)])
@pytest.mark.parametrize(("arguments", "message"), BAD_RECURRENTS)
def test_recurrent_layers(op, gates, arguments, message):
    with pytest.raises(RuntimeError, match=message):
        getattr(torch.ops.ipex, op)(*arguments(parameters(gates)), False, False, None)


def test_matmuls():
    with pytest.raises(RuntimeError, match="a post-op that this version knows"):
        torch.ops.ipex.matmul_prepack(["warp"], None)
    with pytest.raises(RuntimeError, match="math mode 0"):
        torch.ops.ipex.matmul_prepack([], 9)


def test_chains():
    with pytest.raises(RuntimeError, match="at least one layer, got none"):
        torch.ops.ipex.linear_chain_prepack([])
    with pytest.raises(RuntimeError, match="at least one layer, got none"):
        torch.ops.ipex.convolution_chain_prepack([])
    layer = torch.ops.ipex.convolution_prepack(*CONVOLUTION.values())
    with pytest.raises(RuntimeError, match="one of 8 channels before one for 4"):
        torch.ops.ipex.convolution_chain_prepack([layer, layer])
    linear = torch.ops.ipex.linear_prepack(*LINEAR.values())
    chain = torch.ops.ipex.linear_chain_prepack([linear, linear])
    with pytest.raises(RuntimeError, match="input with last dimension 4"):
        torch.ops.ipex.linear_chain_run(torch.randn(2, 4), chain)


ADDS = {"post_ops": ["add", "relu", "mul"]}
OPERAND_LISTS = [[], [torch.ones(1)], [torch.ones(1)] * 3]


@pytest.mark.parametrize("operands", OPERAND_LISTS)
def test_a_run_op_wants_as_many_operands_as_its_post_ops_take(operands):
    message = f"2 operands for its post-ops, got {len(operands)}"
    linear = torch.ops.ipex.linear_prepack(*{**LINEAR, **ADDS}.values())
    with pytest.raises(RuntimeError, match=message):
        torch.ops.ipex.linear_run(torch.randn(2, 4), linear, operands, True)
    convolution = torch.ops.ipex.convolution_prepack(*{**CONVOLUTION, **ADDS}.values())
    with pytest.raises(RuntimeError, match=message):
        torch.ops.ipex.convolution_run(torch.randn(1, 4, 8, 8), convolution, operands, True)
    chain = torch.ops.ipex.convolution_chain_prepack([convolution])
    with pytest.raises(RuntimeError, match=message):
        torch.ops.ipex.convolution_chain_run(torch.randn(1, 4, 8, 8), chain, operands, True)
    matmul = torch.ops.ipex.matmul_prepack(ADDS["post_ops"], None)
    with pytest.raises(RuntimeError, match=message):
        torch.ops.ipex.matmul_run(torch.randn(2, 4), matmul, operands, True, torch.randn(4, 3))
    if operands:
        plain = torch.ops.ipex.linear_chain_prepack([linear])
        with pytest.raises(RuntimeError, match="2 operands for its post-ops, got 0"):
            torch.ops.ipex.linear_chain_run(torch.randn(2, 4), plain)
