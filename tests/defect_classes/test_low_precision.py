"""16-bit numbers: whatever computes them, the result is as near to float32's as stock PyTorch's is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from anchored import After, every_anchor, make, trace
from low_precision import assert_no_worse, both_dtypes, check_16_bit, check_lowered
from support import kinds


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
    assert_no_worse(ours, stock, exact, dtype)


@pytest.mark.usefixtures("_fast_path")
@both_dtypes
def test_traced_under_autocast(dtype):
    layer, x = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), torch.randn(2, 7, 32)
    with torch.no_grad():
        exact = layer(x)
        with torch.autocast("cpu", dtype=dtype, cache_enabled=False):  # the tracer can't follow cached casts
            traced = trace(layer, x)
        stock, ours = traced(x), ipex.jit_optimize(traced)(x)  # eager's fast path is lost in tracing, and gives 16 bits
    assert ours.dtype == stock.dtype
    assert_no_worse(ours, stock, exact, dtype)


class Scaled(nn.Module):
    """What nothing is fused into, nor with."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.linear(x) * 0.5
        return y, y + y


@both_dtypes
def test_optimised_under_autocast(dtype):
    model, x = Scaled().eval(), torch.randn(3, 8)
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype, cache_enabled=False):
        expected = model(x)
        traced = trace(model, x)
        optimized = ipex.jit_optimize(traced)
        assert torch.is_autocast_enabled("cpu")
    assert kinds(optimized) == kinds(ipex.jit_optimize(traced))
    # Under autocast TorchScript would cast at every run what it does not know the dtype of.
    assert [y.dtype for y in optimized(x)] == [y.dtype for y in expected] == [dtype, dtype]


@pytest.mark.usefixtures("_fast_path")
@both_dtypes
@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_encoder_layer_given_a_dtype(dtype, norm_first):
    check_lowered(
        nn.TransformerEncoderLayer(32, 4, 64, norm_first=norm_first, batch_first=True), torch.randn(2, 7, 32), dtype
    )


@every_anchor
@both_dtypes
def test_anchors_given_a_dtype(anchor, dtype):
    module, x = make(anchor)
    check_lowered(After(module, lambda f, x: F.relu(f(x)) + x), x, dtype)


@both_dtypes
@pytest.mark.parametrize("around", [torch.bfloat16, torch.float16], ids=["in bfloat16", "in float16"])
def test_a_lowered_model_under_autocast(dtype, around):
    """Either dtype may be computed in, so the model is held to what stock gets in the coarser one."""
    model, x = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval(), torch.randn(2, 4, 9, 9)
    optimized = ipex.jit_optimize(model, x, dtype=dtype)
    coarser = max(dtype, around, key=lambda d: torch.finfo(d).eps)
    with torch.no_grad():
        exact = model(x)
        with torch.autocast("cpu", dtype=coarser):
            stock = model(x)
        with torch.autocast("cpu", dtype=around):
            ours = optimized(x)
    assert_no_worse(ours, stock, exact, coarser)


@pytest.mark.parametrize("scale", [torch.rand(8) + 0.5, 1.5], ids=["a tensor", "a number"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_folded_constant_under_autocast(scale, in_place):
    """A float32 tensor makes autocast's 16-bit result float32, a number does not, nor does anything in place."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.scale = nn.Linear(8, 8), scale

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x)
            return y.mul_(self.scale) if in_place else y * self.scale

    model, x = Scaled().eval(), torch.randn(4, 8)
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, x))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours, eager = optimized(x), model(x)
    assert ours.dtype == eager.dtype
    torch.testing.assert_close(ours.float(), eager.float(), rtol=0, atol=2**-6 * eager.abs().max().item())
