"""Inputs that benchmarks don't have: NaN, other dtypes, no batch, an empty one; and layers with unusual arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anchored import After, Recurrent, check, each_kind, every_anchor, every_convolution, make, named
from support import skip_if_aten_has_no_limit


def with_strange_values(x: Tensor) -> Tensor:
    x = x.clone()
    x.view(-1)[[0, 7, 11]] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    return x


ACTIVATIONS = {
    **{f.__name__: f for f in (F.relu, F.relu6, F.silu, F.gelu, F.hardswish, F.hardsigmoid, F.leaky_relu, F.elu)},
    **{f.__name__: f for f in (F.mish, F.softplus, torch.sigmoid, torch.tanh, torch.abs, torch.exp, torch.square)},
    "clamp": lambda y: y.clamp(-0.5, 0.5),
    "clamp, min": lambda y: y.clamp(min=0.0),
    "clamp, max": lambda y: y.clamp(max=0.0),
    "hardtanh": lambda y: F.hardtanh(y, -0.5, 0.5),
    "softmax": lambda y: torch.softmax(y, -1),
    "times 0": lambda y: y * 0,
    "maximum": lambda y: torch.maximum(y, torch.zeros(1)),
}


@pytest.mark.parametrize("anchor", ["conv2d", "conv_transpose2d", "linear"])
@named("activation", ACTIVATIONS)
def test_nan_and_infinity(anchor, activation):
    skip_if_aten_has_no_limit(activation)
    module, x = make(anchor)
    check(After(module, lambda f, x: activation(f(x))), (x,), (with_strange_values(x),))


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, 2, padding=1),
        nn.MaxPool2d(3, 1, dilation=2, ceil_mode=True),
        nn.AvgPool2d(3, padding=1),
        nn.AvgPool2d(3, 2, ceil_mode=True, count_include_pad=False),
        nn.AdaptiveAvgPool2d(3),
        nn.AdaptiveMaxPool2d(2),
    ],
    ids=str,
)
def test_nan_and_infinity_through_pools(pool):
    x = torch.randn(2, 4, 9, 9)
    check(nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), pool), (x,), (with_strange_values(x),))


@each_kind
@named(
    "function",
    {
        "float64 constant": lambda f, x: f(x) + torch.full((1,), 0.1, dtype=torch.float64),
        "float64 number": lambda f, x: f(x) * torch.tensor(0.1, dtype=torch.float64),
        "integers": lambda f, x: f(x) + torch.arange(x.shape[-1]),
        "bfloat16": lambda f, x: f(x) * torch.ones(1, dtype=torch.bfloat16),
        "float64 residual": lambda f, x: f(x) + x.double(),
        "float64 result": lambda f, x: f(x).double() + x,
        "in place": lambda f, x: f(x).add_(x.double()),
        "integer result": lambda f, x: F.relu(f(x)).long() + 1,
    },
)
def test_dtypes_that_promote(anchor, function):
    module, x = make(anchor)
    check(After(module, function), (x,))


@every_anchor
def test_float64(anchor):
    module, x = make(anchor)
    check(After(module.double(), lambda f, x: F.relu(f(x)) + x), (x.double(),), tolerance=1e-12)


class Product(nn.Module):
    """A product that integers have too."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.matmul(x, y) * 2 + 1


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float64])
def test_products_of_other_dtypes(dtype):
    floats = torch.randn(3, 4, 5), torch.randn(5, 6)
    check(Product(), floats, tuple((10 * x).to(dtype) for x in floats))


@every_convolution
@pytest.mark.parametrize("traced_with_a_batch", [True, False])
def test_unbatched_convolutions(anchor, traced_with_a_batch):
    module, x = make(anchor)
    calls = [(x,), (x[0],)] if traced_with_a_batch else [(x[0],)]
    check(After(module, lambda f, x: F.relu(f(x)) + x), *calls)


@named("function", {"relu": lambda f, x: F.relu(f(x)), "residual": lambda f, x: f(x) + x})
def test_unbatched_linear(function):
    check(After(nn.Linear(6, 6), function), (torch.randn(3, 6),), (torch.randn(6),), (torch.randn(2, 3, 6),))


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_unbatched_recurrent(layer):
    check(Recurrent(layer(6, 5, num_layers=2, bidirectional=True)), (torch.randn(4, 6),))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("kernel", [2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize(("layer", "size"), [(nn.Conv1d, (11,)), (nn.Conv2d, (9, 12)), (nn.Conv3d, (5, 6, 7))])
def test_padding_same(layer, size, kernel, dilation):
    model = nn.Sequential(layer(3, 4, kernel, padding="same", dilation=dilation), nn.ReLU())
    check(model, (torch.randn(2, 3, *size),), (torch.randn(1, 3, *size[::-1]),))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("padding", ["same", "valid", (1, 0), (2, 1)])
def test_padding_of_rectangles(padding):
    check(nn.Conv2d(3, 4, (4, 3), padding=padding), (torch.randn(2, 3, 9, 8),), (torch.randn(3, 8, 9),))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_modes(mode):
    check(nn.Conv2d(3, 4, 3, padding=1, padding_mode=mode), (torch.randn(2, 3, 8, 8),))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")
@pytest.mark.parametrize("arguments", [{"proj_size": 4}, {"proj_size": 4, "bidirectional": True, "num_layers": 2}])
def test_lstm_with_projection(arguments):
    check(Recurrent(nn.LSTM(6, 8, **arguments)), (torch.randn(5, 2, 6),), (torch.randn(3, 4, 6),))


class States(nn.Module):
    """All that a recurrent layer returns."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        states, last = self.layer(x)
        return states, *(last if isinstance(last, tuple) else (last,))


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("arguments", [{}, {"bias": False}, {"bidirectional": True, "num_layers": 2}])
def test_recurrent_layers(layer, arguments):
    inputs = torch.randn(5, 2, 6), torch.randn(1, 1, 6), torch.randn(2, 7, 6).transpose(0, 1)
    check(States(layer(6, 5, **arguments)), *((x,) for x in inputs))


@pytest.mark.parametrize("anchor", ["conv1d", "conv2d", "conv3d", "conv_transpose2d", "linear", "matmul", "lstm"])
def test_empty_batches(anchor):
    module, x = make(anchor)
    check(After(module, lambda f, x: F.relu(f(x)) + x), (x,), (x[:0],))
