"""States as each version of the format wrote them: they load, compute, and are written as they were."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ipex  # noqa: F401
from support import assert_same

WEIGHT, WINDOWS, BIAS = torch.randn(8, 6), torch.randn(8, 2, 3, 3), torch.randn(8)
SCALE, VANISHED = torch.tensor([0.0, *range(1, 8)]), torch.randn(1, 7)
GEOMETRY = {
    "spatial_rank": [2],
    "stride": [2, 2],
    "padding_begin": [1, 1],
    "padding_end": [1, 1],
    "dilation": [1, 1],
    "output_padding": [0, 0],
    "groups": [2],
    "transposed": [0],
}
RECURRENT = {
    "weight_ih_l0": torch.randn(20, 6),
    "weight_hh_l0": torch.randn(20, 5),
    "bias_ih_l0": torch.randn(20),
    "bias_hh_l0": torch.randn(20),
}
IN_INT8 = {
    **RECURRENT,
    "weight_ih_l0": torch.randint(-127, 128, (20, 6)).to(torch.int8),
    "weight_hh_l0": torch.randint(-127, 128, (20, 5)).to(torch.int8),
    "scales_ih_l0": torch.rand(20, 1) / 256,
    "scales_hh_l0": torch.rand(20, 1) / 256,
}
LAYERS = {"layers": [1], "bidirectional": [0], "batch_first": [0]}
PINNED = {"math_mode": [0]}
CODES, SCALES = torch.randint(-8, 8, (5, 6)), torch.rand(5, 1)
HALVES = ((CODES & 15)[:, ::2] | (CODES & 15)[:, 1::2] << 4).to(torch.uint8)  # 0 to 15, two in each
VALUES = torch.ops.ipex.round_weight(torch.ones(1, 8), "nf4", 0, True)[3]
ORDER, ROW = torch.tensor([3, 0, 5, 1, 2, 4]), {"inputs": [6], "group_size": [6]}
X, IMAGE, SEQUENCE = torch.randn(3, 6), torch.randn(1, 4, 9, 9), torch.randn(4, 2, 6)
HIDDEN = torch.randn(1, 2, 5)


def half(*tensors: Tensor) -> list[Tensor]:
    return [tensor.to(torch.bfloat16) for tensor in tensors]


def linear(context: torch.ScriptObject, x: Tensor = X) -> Tensor:
    return torch.ops.ipex.linear_run(x, context, [], True)


def weight_only(context: torch.ScriptObject, x: Tensor = X) -> Tensor:
    return torch.ops.ipex.weight_only_linear_run(x, context, [], True)


def lstm(context: torch.ScriptObject) -> Tensor:
    return torch.ops.ipex.lstm_run(SEQUENCE, HIDDEN, HIDDEN, context)[0]


def lstm_in_aten() -> Tensor:
    return torch.lstm(SEQUENCE, (HIDDEN, HIDDEN), list(RECURRENT.values()), True, 1, 0.0, False, False, False)[0]


def dynamic_lstm(context: torch.ScriptObject) -> Tensor:
    """By aten, which takes the numbers that the codes stand for: rounding rows is another test's matter."""
    with torch.enable_grad():
        x = SEQUENCE.clone().requires_grad_()
        return torch.ops.ipex.dynamic_lstm_run(x, HIDDEN, HIDDEN, context)[0].detach()


def dynamic_lstm_in_aten() -> Tensor:
    weights = [IN_INT8[f"weight_{w}_l0"].float() * IN_INT8[f"scales_{w}_l0"] for w in ("ih", "hh")]
    parameters = [*weights, IN_INT8["bias_ih_l0"], IN_INT8["bias_hh_l0"]]
    return torch.lstm(SEQUENCE, (HIDDEN, HIDDEN), parameters, True, 1, 0.0, False, False, False)[0]


STATES = {
    "linear 1": (
        "LinearContext",
        (1, {"weight": WEIGHT, "bias": BIAS}, {}, ["leaky_relu(0.01)"]),
        linear,
        lambda: F.leaky_relu(F.linear(X, WEIGHT, BIAS)),
    ),
    "linear 1, a folded batch_norm": (
        "LinearContext",
        (1, {"weight": WEIGHT, "bias": BIAS, "folded_scale": BIAS.abs() + 1, "folded_shift": BIAS}, {}, []),
        linear,
        lambda: F.linear(X, WEIGHT, BIAS),
    ),
    "linear 2": (
        "LinearContext",
        (2, {"weight": WEIGHT}, PINNED, ["mish"]),
        linear,
        lambda: F.mish(F.linear(X, WEIGHT)),
    ),
    "linear 3": (
        "LinearContext",
        (3, {"weight": half(WEIGHT)[0], "bias": BIAS}, {}, []),
        lambda context: linear(context, half(X)[0]),
        lambda: F.linear(*half(X, WEIGHT, BIAS)),
    ),
    "linear 4, a channel that vanished": (
        "LinearContext",
        (
            4,
            {"weight": WEIGHT, "bias": BIAS, "folded_scale": SCALE, "folded_shift": BIAS, "vanished": VANISHED},
            {},
            [],
        ),
        linear,
        lambda: F.linear(X, WEIGHT, BIAS),
    ),
    "linear 4, constants that widen": (
        "LinearContext",
        (4, {"weight": WEIGHT}, {"widens": [1]}, []),
        linear,
        lambda: F.linear(X, WEIGHT),
    ),
    "convolution 1": (
        "ConvolutionContext",
        (1, {"weight": WINDOWS, "bias": BIAS}, GEOMETRY, ["relu"]),
        lambda context: torch.ops.ipex.convolution_run(IMAGE, context, [], True),
        lambda: F.relu(F.conv2d(IMAGE, WINDOWS, BIAS, 2, 1, 1, 2)),
    ),
    "convolution 2": (
        "ConvolutionContext",
        (2, {"weight": WINDOWS}, {**GEOMETRY, **PINNED}, []),
        lambda context: torch.ops.ipex.convolution_run(IMAGE, context, [], True),
        lambda: F.conv2d(IMAGE, WINDOWS, None, 2, 1, 1, 2),
    ),
    "convolution 3": (
        "ConvolutionContext",
        (3, {"weight": half(WINDOWS)[0]}, GEOMETRY, []),
        lambda context: torch.ops.ipex.convolution_run(half(IMAGE)[0], context, [], True),
        lambda: F.conv2d(*half(IMAGE, WINDOWS), None, 2, 1, 1, 2),
    ),
    "convolution 6": (
        "ConvolutionContext",
        (6, {"weight": WINDOWS, "bias": BIAS}, {**GEOMETRY, "needs_batch": [1], "is_sum": [1]}, []),
        lambda context: torch.ops.ipex.convolution_run(IMAGE, context, [], True),
        lambda: F.conv2d(IMAGE, WINDOWS, BIAS, 2, 1, 1, 2),
    ),
    "convolution 7": (
        "ConvolutionContext",
        (7, {"weight": WINDOWS, "bias": BIAS}, {**GEOMETRY, "is_sum": [1], "adds_input": [1]}, []),
        lambda context: torch.ops.ipex.convolution_run(IMAGE, context, [], True),
        lambda: F.conv2d(IMAGE, WINDOWS, BIAS, 2, 1, 1, 2),
    ),
    "matmul 1": (
        "MatmulContext",
        (1, {}, {}, ["mul_number(0.5)"]),
        lambda context: torch.ops.ipex.matmul_run(X, context, [], True, X.T),
        lambda: X @ X.T * 0.5,
    ),
    "matmul 2": (
        "MatmulContext",
        (2, {}, PINNED, []),
        lambda context: torch.ops.ipex.matmul_run(X, context, [], True, X.T),
        lambda: X @ X.T,
    ),
    "weight-only 1": (
        "WeightOnlyLinearContext",
        (1, {"codes": CODES.to(torch.int8), "scales": SCALES}, ROW, ["relu"]),
        weight_only,
        lambda: F.linear(X, CODES * SCALES).relu(),
    ),
    "weight-only 5, short floats": (
        "WeightOnlyLinearContext",
        (5, {"codes": CODES.to(torch.float8_e4m3fn), "scales": SCALES}, ROW, []),
        weight_only,
        lambda: F.linear(X, CODES * SCALES),
    ),
    "weight-only 5, inputs in an order": (
        "WeightOnlyLinearContext",
        (5, {"codes": CODES.to(torch.int8), "scales": SCALES, "order": ORDER}, ROW, []),
        weight_only,
        lambda: F.linear(X[:, ORDER], CODES * SCALES),
    ),
    "weight-only 5, results of the input's dtype": (
        "WeightOnlyLinearContext",
        (5, {"codes": CODES.to(torch.int8), "scales": SCALES}, {**ROW, "follows_input": [1]}, ["relu"]),
        lambda context: weight_only(context, half(X)[0]),
        lambda: F.linear(half(X)[0].float(), CODES * SCALES).relu().bfloat16(),
    ),
    "weight-only 8": (
        "WeightOnlyLinearContext",
        (8, {"codes": HALVES, "scales": SCALES, "values": VALUES}, ROW, ["relu"]),
        weight_only,
        lambda: F.linear(X, VALUES[CODES & 15] * SCALES).relu(),
    ),
    "lstm 1": ("LstmContext", (1, RECURRENT, LAYERS, []), lstm, lstm_in_aten),
    "dynamic lstm 1": ("DynamicLstmContext", (1, IN_INT8, LAYERS, []), dynamic_lstm, dynamic_lstm_in_aten),
    "lstm 2": ("LstmContext", (2, RECURRENT, {**LAYERS, **PINNED}, []), lstm, lstm_in_aten),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_of_each_version(name):
    kind, state, run, expected = STATES[name]
    class_name = f"__torch__.torch.classes.ipex.{kind}"
    context = torch.ScriptObject.__new__(torch.ScriptObject)
    context.__setstate__((state, class_name))
    actual, wanted = run(context), expected()
    assert actual.dtype == wanted.dtype
    if wanted.dtype == torch.bfloat16:
        torch.testing.assert_close(actual, wanted, rtol=2**-7, atol=2**-5)
    else:
        assert_same(actual, wanted)
    version, tensors, integers, post_ops = context.__getstate__()[0]
    assert version == state[0] == int(name.split(",")[0][-1])
    assert {key: tensor.tolist() for key, tensor in tensors.items()} == {k: t.tolist() for k, t in state[1].items()}
    assert integers == state[2]
    assert post_ops == state[3]
