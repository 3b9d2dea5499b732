"""Convolutions of sequences are products of windows on AMX's tiles: no primitive is made."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import ipex
import own_kernel
from own_kernel import optimized
from support import assert_same, check_against_eager, contexts, kinds


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def check(model: nn.Module, x: Tensor, is_own: bool = True) -> None:
    if ipex.isa.has_amx():
        own_kernel.check(model, x, is_own)
    else:  # oneDNN convolves, as it is as fast
        check_against_eager(model, x)


def sequence(sequences: int = 1, channels: int = 64, length: int = 600) -> Tensor:
    return torch.randn(sequences, channels, length)


def layer(channels: int = 64, results: int = 128, taps: int = 3, **more: object) -> nn.Conv1d:
    return nn.Conv1d(channels, results, taps, **more)


@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("taps", [2, 3, 8])
def test_windows(taps, stride, padding):
    check(layer(taps=taps, stride=stride, padding=min(padding, taps - 1)), sequence())


@pytest.mark.parametrize("channels", [48, 57, 130])
@pytest.mark.parametrize("results", [128, 144, 161])
def test_channels(channels, results):
    check(layer(channels, results, bias=results % 2 == 0), sequence(channels=channels))


@pytest.mark.parametrize("length", [97, 110, 129, 1000])
def test_lengths(length):
    check(layer(padding=1), sequence(length=length))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU, nn.GELU, nn.Hardswish, nn.LeakyReLU])
def test_activations(activation):
    check(nn.Sequential(layer(), activation(), layer(128, stride=2, padding=1), activation()), sequence())


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layer(padding=1), layer(padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.first(x) + self.second(x)) * 0.5


@pytest.mark.parametrize("sequences", [1, 3])
def test_operands(sequences):
    check(Residual(), sequence(sequences))


@pytest.mark.parametrize(
    ("length", "stride", "taps", "is_own"), [(90, 2, 3, False), (90, 3, 3, True), (300, 2, 3, True)]
)
def test_sequences_whose_windows_are_not_in_step(length, stride, taps, is_own):
    check(nn.Sequential(layer(taps=taps, stride=stride), nn.ReLU()), sequence(4, length=length), is_own=is_own)


@pytest.mark.parametrize("lies", ["channels last", "sliced", "without a batch"])
def test_layouts(lies):
    x = sequence()
    sliced = sequence(length=610)[..., 3:603]
    x = {"channels last": x.mT.contiguous().mT, "sliced": sliced, "without a batch": x[0]}[lies]
    for padding in (0, 2):
        check(layer(padding=padding), x)


@pytest.mark.parametrize("padding", [0, 2])
def test_a_sequence_that_nobody_lays_out_before(padding):
    model, x = layer(padding=padding).eval(), sequence()
    own = ipex.jit_optimize(torch.jit.trace(model, x), disable=["keep_channels_last"])
    assert "ipex::to_channels_last" not in kinds(own)
    assert_same(own(x), model(x))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_special_values(value):
    x, model = sequence(), layer(padding=1)
    x[0, 3, 0], x[0, 5, 310] = value, value
    check(model, x)
    model = layer()
    model.weight[2, 3, 0] = value  # in no tile
    check(model, x, is_own=False)


def test_what_is_left_to_onednn():
    for more in ({"dilation": 2}, {"groups": 2}, {"results": 64}):
        check(layer(**more), sequence(), is_own=False)
    check(layer(), sequence(length=40), is_own=False)


def test_bfloat16_products_are_onednns():
    x, model = sequence(channels=64, length=400), layer(64, 64)
    own = ipex.jit_optimize(torch.jit.trace(model.eval(), x), fp32_math_mode=ipex.FP32MathMode.BF32)
    assert_same(own(x), model(x), tolerance=2e-2)


def test_other_lengths_make_no_primitive():
    model = layer(padding=1)
    own = optimized(model, sequence())
    for length in (100, 300, 600, 601):
        x = sequence(length=length)
        assert_same(own(x), model(x))
    assert not ipex.isa.has_amx() or sum(context.cached_primitives() for context in contexts(own)) == 0
