"""In 16 bits kernels read channels in pairs: an odd one is not paired with the next pixel, or what lies behind."""

import copy

import pytest
import torch
from torch import nn

import ipex
from support import assert_round_trip, assert_same, contexts, fallback_reasons, kinds

ODD = {
    "1 channel": (nn.Conv2d(1, 5, 3), (2, 1, 8, 8)),
    "3 channels": (nn.Conv2d(3, 5, 3, stride=2), (2, 3, 8, 8)),
    "3 channels, pixels": (nn.Conv2d(3, 5, 1), (2, 3, 8, 8)),
    "17 channels": (nn.Conv2d(17, 5, 2), (2, 17, 8, 8)),
    "1-d": (nn.Conv1d(5, 4, 3), (2, 5, 8)),
    "3-d": (nn.Conv3d(3, 4, 2), (2, 3, 4, 4, 4)),
    "groups": (nn.Conv2d(12, 8, 3, groups=4), (2, 12, 8, 8)),
    "groups of 1": (nn.Conv3d(8, 24, 3, padding=1, groups=8), (2, 8, 1, 1, 2)),
    "depthwise": (nn.Conv2d(7, 7, 3, groups=7), (2, 7, 8, 8)),
    "transposed": (nn.ConvTranspose2d(3, 4, 2), (2, 3, 6, 6)),
    "transposed, groups": (nn.ConvTranspose2d(6, 4, 2, stride=2, groups=2), (2, 6, 6, 6)),
    "transposed, 1-d": (nn.ConvTranspose1d(5, 4, 3), (2, 5, 6)),
    "weight in channels-last": (nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last), (2, 3, 8, 8)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ODD)
def test_nan_stays_where_it_is(tmp_path, name, dtype):
    layer, shape = ODD[name]
    layer = copy.deepcopy(layer).eval()
    x = torch.randn(shape)
    with torch.no_grad():
        clean = layer(x)
        # A NaN in the first channel of each group: the one that the last channel of the pixel before is paired with.
        x[1, :: shape[1] // layer.groups][..., shape[-1] // 2] = float("nan")
        expected = layer(x)
        optimized = ipex.jit_optimize(torch.jit.trace(layer, x, check_trace=False), dtype=dtype)
        for image in (x, x.to(memory_format=torch.channels_last) if x.dim() == 4 else x, x[1]):
            eager = expected if image.dim() == x.dim() else expected[1]
            assert torch.equal(optimized(image).isnan(), eager.isnan())
        assert_same(optimized(torch.nan_to_num(x))[0], clean[0], 0.02)
    assert kinds(optimized)["ipex::convolution_run"] == 1
    if dtype == torch.bfloat16:
        assert fallback_reasons(optimized) == []
    assert_round_trip(optimized, tmp_path, x)


def test_the_weight_comes_back_bit_for_bit(tmp_path):
    for layer, shape in ODD.values():
        layer = copy.deepcopy(layer).bfloat16().eval()
        x = torch.randn(shape).bfloat16()
        with torch.no_grad():
            optimized = ipex.jit_optimize(torch.jit.trace(layer, x, check_trace=False))
            optimized(x)
        (context,) = contexts(assert_round_trip(optimized, tmp_path, x))
        assert torch.equal(context.__getstate__()[0][1]["weight"].reshape(layer.weight.shape), layer.weight)


ONE_COLUMN = {
    f"one column, {c}": (nn.Conv2d(c, 33, 2, (1, 3), 1), (2, c, 4, 1)) for c in (1, 3)
}  # aten's leaves rows out


@pytest.mark.parametrize("name", [*ODD, *ONE_COLUMN])
def test_nan_stays_where_it_is_under_autocast(name):
    layer, shape = (ODD | ONE_COLUMN)[name]
    layer, x = copy.deepcopy(layer).eval(), torch.randn(shape)
    x[1, :: shape[1] // layer.groups][..., shape[-1] // 2] = float("nan")
    with torch.no_grad():
        expected, optimized = layer(x), ipex.jit_optimize(torch.jit.trace(layer, x, check_trace=False))
        for image in (x, x.to(memory_format=torch.channels_last) if x.dim() == 4 else x):
            with torch.autocast("cpu", torch.bfloat16):
                y = optimized(image)
            assert y.dtype == torch.bfloat16
            torch.testing.assert_close(y.float(), expected, rtol=2e-2, atol=2e-2, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_autocast_infinities_meet_no_zeros(dtype):
    """Of float32 images, whatever the dtype of the weights."""
    for layer, shape in (
        (nn.Conv2d(3, 32, (1, 5), 3, (2, 0)), (2, 3, 6, 6)),
        (nn.Conv2d(72, 2, 1, 1, 1), (2, 72, 14, 13)),
    ):
        model, x = layer.eval().to(dtype), torch.randn(shape)
        x[0, 1, 1, 0] = x[0, 2, 1, 4] = torch.inf
        with torch.no_grad():
            optimized = ipex.jit_optimize(torch.jit.script(model))
            expected = copy.deepcopy(model).float()(x)
            with torch.autocast("cpu", torch.bfloat16):
                y = optimized(x)
        torch.testing.assert_close(y.float(), expected, rtol=2e-2, atol=2e-2, equal_nan=True)


def test_under_autocast_a_transposed_one_may_give_nothing():
    """aten refuses that of floats."""
    layer = nn.ConvTranspose2d(4, 8, 1, 1, 2, groups=4, bias=False).eval().requires_grad_(False)
    x = torch.randn(1, 4, 6, 4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        try:
            expected = layer(x)
        except RuntimeError as error:
            pytest.skip(f"aten refuses that of bfloat16 too on this CPU: {error}")
        assert expected.numel() == 0
        assert_same(ipex.jit_optimize(torch.jit.trace(layer, x, check_trace=False))(x), expected)
