"""In BF32 oneDNN gets images and weights in bfloat16, and gives float32. Which layers do, it depends on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import BF32_TOLERANCE, assert_round_trip, assert_same, contexts, fallback_reasons

BF32, FP32 = ipex.FP32MathMode.BF32, ipex.FP32MathMode.FP32
ROUNDS = ipex.isa.has_fast_avx512_bf16() or ipex.isa.has_amx()

LAYERS = {
    "14x14": (nn.Conv2d(32, 48, 3, padding=1), (1, 32, 14, 14)),
    "a batch, strides": (nn.Conv2d(64, 64, 3, stride=2, padding=1), (3, 64, 19, 23)),
    "dilation": (nn.Conv2d(32, 32, 3, dilation=2), (2, 32, 20, 20)),
    "5x5, no bias": (nn.Conv2d(32, 32, 5, bias=False), (1, 32, 17, 17)),
    "ends differ": (nn.Conv2d(32, 64, 4, padding="same"), (1, 32, 16, 16)),
    "1-d": (nn.Conv1d(64, 64, 9, padding=4), (2, 64, 200)),
    "3-d": (nn.Conv3d(16, 32, 3), (1, 16, 10, 10, 10)),
    "weight in channels-last": (
        nn.Conv2d(32, 48, 3, stride=2).to(memory_format=torch.channels_last),
        (2, 32, 30, 30),
    ),
}


# Without AMX these go Winograd's way in float32, which the mode permits: it is as fast, and exact.
FOR_WINOGRAD = {"14x14", "dilation"}


class Residual(nn.Module):
    """What follows the convolution is fused into it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return torch.relu(y * 0.5 + y.new_ones(()))


def optimized_in(mode: ipex.FP32MathMode, model: nn.Module, x: Tensor) -> torch.jit.ScriptModule:
    return ipex.jit_optimize(torch.jit.trace(model, x), fp32_math_mode=mode)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", LAYERS)
def test_results_are_those_of_the_factors_that_the_layer_says_it_has(tmp_path, name):
    layer, shape = LAYERS[name]
    model, x = copy.deepcopy(layer).eval(), torch.randn(shape)
    rounded = copy.deepcopy(model)
    rounded.weight.data = rounded.weight.data.bfloat16().float()
    with torch.no_grad():
        optimized = optimized_in(BF32, model, x)
        y = optimized(x)
        assert_same(y, model(x), BF32_TOLERANCE)
        rounds = "bfloat16_copy" in contexts(optimized)[0].describe()
        assert rounds == (ipex.isa.has_amx() or (ROUNDS and name not in FOR_WINOGRAD))
        assert_same(y, rounded(x.bfloat16().float()) if rounds else model(x), 1e-5)
        assert not ROUNDS or fallback_reasons(optimized) == []
        assert_same(optimized_in(FP32, model, x)(x), model(x))
    loaded = assert_round_trip(optimized, tmp_path, x)
    assert torch.equal(contexts(loaded)[0].__getstate__()[0][1]["weight"].reshape(model.weight.shape), model.weight)


def test_post_ops_and_the_mode_of_the_process():
    model, x = Residual(nn.Conv2d(32, 48, 3, stride=2, padding=1)).eval(), torch.randn(2, 32, 30, 30)
    optimized = ipex.jit_optimize(torch.jit.trace(model, x))
    with torch.no_grad():
        expected, before = model(x), optimized(x)
        with ipex.fp32_math_mode(BF32):
            rounded = optimized(x)
        assert_same(rounded, expected, BF32_TOLERANCE)
        assert torch.equal(optimized(x), before)
        assert torch.equal(rounded, before) != ROUNDS


def test_nan_stays_where_it_is():
    model, x = nn.Conv2d(32, 48, 3, stride=2).eval(), torch.randn(2, 32, 30, 30)
    x[1, 5, 7, 8], x[0, 31, 29, 29] = float("nan"), float("inf")
    with torch.no_grad():
        y, expected = optimized_in(BF32, model, x)(x), model(x)
    assert torch.equal(y.isnan(), expected.isnan())
    assert torch.equal(y.isinf(), expected.isinf())


@pytest.mark.parametrize("layer", [nn.Conv2d(33, 48, 3), nn.Conv2d(32, 48, 3, groups=2), nn.Conv2d(3, 64, 7)])
def test_others_stay_in_float32(layer):
    layer, x = layer.eval(), torch.randn(1, layer.in_channels, 40, 40)
    with torch.no_grad():
        optimized = optimized_in(BF32, layer, x)
        assert_same(optimized(x), layer(x), BF32_TOLERANCE)
    assert "bfloat16_copy" not in contexts(optimized)[0].describe()
