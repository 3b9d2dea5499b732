"""3x3 convolutions of many channels run by Winograd's way: nearly as accurate, and NaN stays in its place.

That no primitive was made is how a test sees that it was taken.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support import (
    assert_round_trip,
    assert_same,
    check_against_eager,
    contexts,
    fallback_reasons,
    optimized_for,
    own_thread_count,
    primitive_count,
)

CHANNELS = 64
SIDE = 16  # 16 tiles


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def convolution(channels: int = CHANNELS, columns: int = CHANNELS, **kwargs) -> nn.Conv2d:
    return nn.Conv2d(channels, columns, 3, **{"padding": 1, **kwargs})


def image(channels: int = CHANNELS, height: int = SIDE, width: int = SIDE, batch: int = 1) -> Tensor:
    return torch.randn(batch, channels, height, width)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2, (0, 1), (2, 0)])
@pytest.mark.parametrize(("height", "width"), [(16, 16), (17, 16), (18, 21), (19, 23), (15, 40), (5, 200)])
def test_sizes(height, width, padding, bias):
    x = image(height=height, width=width)
    optimized = check_against_eager(convolution(padding=padding, bias=bias), x)
    assert primitive_count(optimized) == 0
    assert fallback_reasons(optimized) == []


@pytest.mark.parametrize("padding", [0, 1, 2, (1, 2), "same"])
@pytest.mark.parametrize("dilation", [2, 3, 4, (1, 2), (5, 2), (2, 1)])
@pytest.mark.parametrize(("height", "width"), [(29, 35), (41, 30)])
def test_dilations(height, width, dilation, padding):
    x = image(height=height, width=width, batch=2)
    optimized = check_against_eager(convolution(dilation=dilation, padding=padding), x)
    assert primitive_count(optimized) == 0
    assert fallback_reasons(optimized) == []


def test_a_dilation_as_wide_as_the_image():
    """The results without a dilation are the corners of the image, and so on: one of each."""
    x = image(height=8, width=8, batch=16)
    for dilation in (2, 3, 5, 8, 9, (1, 8), (9, 1)):
        check_against_eager(convolution(dilation=dilation, padding=dilation), x)


@pytest.mark.parametrize("columns", [33, 36, 48, 64, 72, 160, 255])
@pytest.mark.parametrize("channels", [32, 36, 47, 64, 208])
def test_numbers_of_channels(channels, columns):
    x = image(channels, 57, 60)
    also = image(channels, 57, 61)
    optimized = check_against_eager(convolution(channels, columns), x, also=(also,))
    assert primitive_count(optimized) == 0


@pytest.mark.parametrize("kind", [nn.Identity, nn.Hardswish])
@pytest.mark.parametrize(("groups", "channels", "columns"), [(2, 32, 32), (3, 36, 40), (5, 40, 33), (2, 112, 48)])
def test_groups(groups, channels, columns, kind):
    """Channels and columns of a group."""
    layer = convolution(groups * channels, groups * columns, groups=groups)
    x = image(groups * channels, 29, 32, batch=2)
    optimized = check_against_eager(nn.Sequential(layer, kind()), x, also=(x[:1].contiguous(),))
    assert primitive_count(optimized) == 0


def test_groups_whose_weight_each_call_transforms():
    layer = convolution(512, 512, groups=2, dilation=2, padding=2)
    optimized = check_against_eager(nn.Sequential(layer, nn.ReLU()), image(512, 40, 40))
    assert primitive_count(optimized) == 0


def test_a_group_does_not_see_what_is_not_finite_in_another():
    layer = convolution(3 * 36, 3 * 36, groups=3)
    x = image(3 * 36)
    x[0, 36, 5, 5] = float("nan")
    assert_same(optimized_for(layer, x)(x), layer(x))


def test_the_sum_with_an_image_of_groups():
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = convolution(80, 80, groups=2)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.convolution(x) + x)

    optimized = check_against_eager(Sum(), image(80))
    assert primitive_count(optimized) == 0


def test_padding_that_differs_at_the_ends():
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = convolution(padding=0)

        def forward(self, x: Tensor) -> Tensor:
            return self.convolution(F.pad(x, (0, 1, 2, 1)))

    optimized = check_against_eager(Padded(), image())
    assert primitive_count(optimized) == 0


def test_unbatched_and_channels_last_images():
    x = image()
    optimized = check_against_eager(convolution(), x, also=(x[0], x.to(memory_format=torch.channels_last)))
    assert primitive_count(optimized) == 0


class Residual(nn.Module):
    def __init__(self, dilation: int = 1) -> None:
        super().__init__()
        self.convolution = convolution(dilation=dilation, padding=dilation)
        self.norm = nn.BatchNorm2d(CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.convolution(x)) + x)


def test_post_ops():
    x = image(batch=2)
    for dilation in (1, 2):
        optimized = check_against_eager(Residual(dilation), x)
        assert primitive_count(optimized) == 0
    for activation in (nn.ReLU6(), nn.Hardswish(), nn.SiLU(), nn.GELU(), nn.LeakyReLU(0.1), nn.Sigmoid()):
        optimized = check_against_eager(nn.Sequential(convolution(), activation), x)
        assert primitive_count(optimized) == 0


def test_the_caller_keeps_the_image():
    x = image()
    before = x.clone()
    optimized_for(Residual(), x)(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    "model",
    [
        convolution(stride=2),
        convolution(dilation=8, padding=8),  # 9 or 4 results of a tile
        convolution(groups=4),
        convolution(16, 16),
        nn.Conv2d(CHANNELS, CHANNELS, (3, 1)),
        nn.Conv2d(CHANNELS, CHANNELS, 5),
        nn.ConvTranspose2d(CHANNELS, CHANNELS, 3),
    ],
    ids=str,
)
def test_others_are_left_to_onednn(model):
    x = image(model.in_channels, 20, 20)
    optimized = check_against_eager(model, x)
    assert primitive_count(optimized) == 1


def test_a_small_image_does_not_pay_for_a_weight():
    model = convolution(256, 256)
    optimized = check_against_eager(model, image(256))
    assert primitive_count(optimized) == 1  # 9 MiB for 16 tiles


def test_with_more_tiles_a_larger_weight_pays():
    model = convolution(256, 256)
    optimized = check_against_eager(model, image(256, 29, 32))
    assert primitive_count(optimized) == 0  # 2 MiB for 64 tiles: transformed in each call


def test_a_weight_that_each_call_transforms_gives_the_same_bits():
    model = convolution(256, 256, dilation=2, padding=2)
    x = image(256, 29, 32, batch=4)
    kept, in_each_call = (optimized_for(model, x) for _ in range(2))
    expected = kept(x)  # 9 MiB for 256 tiles
    with own_thread_count():
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            for i in range(4):
                assert torch.equal(in_each_call(x[i : i + 1]), expected[i : i + 1])
    assert primitive_count(kept) == primitive_count(in_each_call) == 0
    assert_same(expected, model(x))


@pytest.mark.parametrize(("height", "width"), [(1, 200), (5, 5)])
def test_tiles_that_are_mostly_empty_do_not_pay(height, width):
    optimized = check_against_eager(convolution(), image(height=height, width=width, batch=4))
    assert primitive_count(optimized) == 1


@pytest.mark.parametrize("seed", range(3))
def test_accuracy(seed):
    torch.manual_seed(seed)
    model = convolution(256, 64)
    x = image(256, 32, 32).relu()
    optimized = optimized_for(model, x)
    actual = optimized(x)
    assert primitive_count(optimized) == 0
    expected = nn.functional.conv2d(x.double(), model.weight.double(), model.bias.double(), padding=1)
    error = (actual - expected).pow(2).mean().sqrt()
    # Sums of products round by 3e-7 to 6e-7, as the CPU has it: docs/decisions/convolutions.md.
    assert error < 1.5e-6 * expected.pow(2).mean().sqrt()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 3e38])
def test_what_is_not_finite_stays_in_its_place(value):
    x = image()
    model = convolution()
    optimized = optimized_for(model, x)
    assert_same(optimized(x), model(x))
    assert primitive_count(optimized) == 0
    for place in ((0, 3, 5, 5), (0, 0, 0, 0), (0, CHANNELS - 1, SIDE - 1, SIDE - 1)):
        bad = x.clone()
        bad[place] = value
        assert_same(optimized(bad), model(bad))
    assert primitive_count(optimized) == 1


def test_nan_is_seen_behind_a_post_op_that_hides_it():
    x = image()
    x[0, 0, 6, 6] = float("-inf")
    model = nn.Sequential(convolution(), nn.Hardtanh(-1, 1))
    optimized = optimized_for(model, x)
    assert_same(optimized(x), model(x))
    assert primitive_count(optimized) == 1


def test_nan_in_the_weight_or_in_the_bias():
    x = image()
    model = convolution()
    model.weight[3, 4, 1, 1] = float("inf")
    model.bias[5] = float("nan")
    assert_same(optimized_for(model, x)(x), model(x))


def test_nothing_comes_from_nothing():
    x = image()
    x[:, :, :8] = 0
    model = convolution(bias=False)
    optimized = optimized_for(model, x)
    actual = optimized(x)
    assert primitive_count(optimized) == 0
    assert torch.equal(actual[:, :, :7], torch.zeros_like(actual[:, :, :7]))


def test_threads_do_not_change_a_bit():
    x = image(height=30, width=30, batch=3)
    for model in (Residual(), convolution(groups=2)):
        optimized = optimized_for(model, x)
        with own_thread_count():
            results = []
            for threads in (1, 2, 5):
                torch.set_num_threads(threads)
                results.append(optimized(x))
        assert all(torch.equal(result, results[0]) for result in results)
        assert primitive_count(optimized) == 0


def test_many_callers_at_the_first_call():
    x = image(height=30, width=30)
    model = convolution()
    expected = model(x)
    optimized = optimized_for(model, x)

    def call(_: int) -> Tensor:
        with torch.no_grad():
            return optimized(x)

    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(call, range(8)):
            assert_same(result, expected)
    assert primitive_count(optimized) == 0


def test_save_and_load(tmp_path):
    x = image()
    model = Residual().eval()
    optimized = optimized_for(model, x)
    optimized(x)
    assert_round_trip(optimized, tmp_path, x)


def test_the_weight_that_is_saved_is_the_plain_one():
    x = image()
    model = convolution()
    optimized = optimized_for(model, x)
    optimized(x)
    (context,) = contexts(optimized)
    assert torch.equal(context.__getstate__()[0][1]["weight"], model.weight)
