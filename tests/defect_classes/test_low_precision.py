"""16-bit numbers: whatever computes them, the result is as near to float32's as stock PyTorch's is."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from anchored import After, every_anchor, make, trace

both_dtypes = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])

# Roundings fall differently when sums are taken in another order.
TIMES_STOCKS_ERROR = 2


def distance(actual: Tensor, exact: Tensor) -> float:
    return ((actual.double() - exact.double()).abs().max() / exact.abs().max()).item()


def check_16_bit(model: nn.Module, x: Tensor, dtype: torch.dtype) -> None:
    """Compare with float32 arithmetic on the same 16-bit weights."""
    low, low_x = copy.deepcopy(model).eval().to(dtype), x.to(dtype)
    optimized = ipex.jit_optimize(trace(low, low_x))
    with torch.no_grad():
        exact, stock = copy.deepcopy(low).float()(low_x.float()), low(low_x)
        bound = TIMES_STOCKS_ERROR * distance(stock, exact) + torch.finfo(dtype).eps / 2
        for _ in range(3):
            ours = optimized(low_x)
            assert ours.dtype == stock.dtype
            assert ours.shape == stock.shape
            assert distance(ours, exact) <= bound


@pytest.fixture(params=[True, False], ids=["fast path", "layer by layer"])
def _fast_path(request):
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(request.param)
    yield
    torch.backends.mha.set_fastpath_enabled(was_enabled)


@pytest.mark.usefixtures("_fast_path")
@both_dtypes
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_transformer_encoder_layer(dtype, norm_first, activation):
    layer = nn.TransformerEncoderLayer(32, 4, 64, activation=activation, norm_first=norm_first, batch_first=True)
    check_16_bit(layer, torch.randn(2, 7, 32), dtype)


@every_anchor
@both_dtypes
def test_anchors(anchor, dtype):
    module, x = make(anchor)
    check_16_bit(After(module, lambda f, x: F.relu(f(x)) + x), x, dtype)


@pytest.mark.usefixtures("_fast_path")
@both_dtypes
def test_autocast_around_a_float32_model(dtype):
    layer, x = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), torch.randn(2, 7, 32)
    optimized = ipex.jit_optimize(trace(layer, x))
    with torch.no_grad():
        exact = layer(x)
        with torch.autocast("cpu", dtype=dtype):
            stock, ours = layer(x), optimized(x)
    assert distance(ours, exact) <= TIMES_STOCKS_ERROR * distance(stock, exact) + torch.finfo(dtype).eps / 2
