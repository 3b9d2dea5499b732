"""An excitation gives what an average and its layers give one after the other, however it is called.

A profiler shows the layers where they run one by one, and nothing where they run at once.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from support import assert_same


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def layer(inputs: int, outputs: int, *post_ops: str, dtype: torch.dtype = torch.float32, bias: bool = True):
    weight = torch.randn(outputs, inputs, 1, 1, dtype=dtype) / inputs**0.5
    own_bias = torch.randn(outputs, dtype=dtype)
    arguments = [1, 1], [0, 0], [1, 1], 1, False, [0, 0], list(post_ops), None, None, None
    packed = torch.ops.ipex.convolution_prepack(weight, own_bias if bias else None, *arguments)
    return packed, weight, own_bias if bias else None


def image(images: int = 2, channels: int = 40, height: int = 9, width: int = 7) -> Tensor:
    return torch.randn(images, channels, height, width).to(memory_format=torch.channels_last)


def layers_seen(context: object, x: Tensor) -> int:
    with torch.profiler.profile() as profile:
        torch.ops.ipex.excitation_run(x, context, [2, 3])
    return sum(event.name == "ipex::convolution_run" for event in profile.events())


def check(x: Tensor, squeezed: int = 10, at_once: bool = True, **options) -> None:
    channels = x.shape[1]
    first, w1, b1 = layer(channels, squeezed, "relu", **options)
    second, w2, b2 = layer(squeezed, channels, "sigmoid", **options)
    context = torch.ops.ipex.excitation_prepack([first, second])
    before = x.clone()
    hidden = torch.conv2d(x.mean((2, 3), keepdim=True), w1, b1).relu()
    actual = torch.ops.ipex.excitation_run(x, context, [2, 3])
    expected = torch.conv2d(hidden, w2, b2).sigmoid()
    assert actual.shape == expected.shape
    assert_same(actual.flatten(), expected.flatten())
    assert torch.equal(x.nan_to_num(), before.nan_to_num())
    assert layers_seen(context, x) == (0 if at_once else 2)


@pytest.mark.parametrize("images", [1, 2, 7, 16])
@pytest.mark.parametrize("channels", [1, 5, 40, 1152])
@pytest.mark.parametrize("squeezed", [1, 6, 48])
def test_sizes(images, channels, squeezed):
    check(image(images, channels), squeezed)


def test_without_bias():
    check(image(), bias=False)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_not_finite(number):
    x = image()
    x[1, 3, 4, 5] = number
    check(x)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(image(1, 96, 56, 56))
    finally:
        torch.set_num_threads(before)


def test_many_images_go_layer_by_layer():
    check(image(17), at_once=False)


def test_contiguous_images_go_layer_by_layer():
    check(image().contiguous(), at_once=False)


def test_gradients_go_layer_by_layer():
    first, w1, b1 = layer(40, 10, "relu")
    context = torch.ops.ipex.excitation_prepack([first])
    x = image().requires_grad_()
    with torch.enable_grad():
        gate = torch.ops.ipex.excitation_run(x, context, [2, 3])
        expected = torch.conv2d(x.mean((2, 3), keepdim=True), w1, b1).relu()
        (actual,) = torch.autograd.grad(gate.sum(), x)
        (wanted,) = torch.autograd.grad(expected.sum(), x)
    assert_same(gate.detach().flatten(), expected.detach().flatten())
    assert_same(actual, wanted)


def test_refuses_layers_that_do_not_fit():
    with pytest.raises(RuntimeError, match="got one of 10 channels before one for 40"):
        torch.ops.ipex.excitation_prepack([layer(40, 10)[0], layer(40, 10)[0]])
    with pytest.raises(RuntimeError, match="expected at least one layer"):
        torch.ops.ipex.excitation_prepack([])


def test_refuses_an_image_of_other_channels():
    context = torch.ops.ipex.excitation_prepack([layer(40, 10)[0]])
    with pytest.raises(RuntimeError, match="with 40 channels"):
        torch.ops.ipex.excitation_run(image(channels=39), context, [2, 3])


def test_one_layer_twice():
    packed, weight, bias = layer(8, 8, "relu")
    context = torch.ops.ipex.excitation_prepack([packed, packed])
    x = image(channels=8)
    hidden = torch.conv2d(x.mean((2, 3), keepdim=True), weight, bias).relu()
    actual = torch.ops.ipex.excitation_run(x, context, [2, 3])
    assert_same(actual.flatten(), torch.conv2d(hidden, weight, bias).relu().flatten())


def test_an_image_without_a_batch():
    packed, weight, bias = layer(8, 8, "relu")
    context, x = torch.ops.ipex.excitation_prepack([packed]), torch.randn(8, 5, 6)
    expected = torch.conv2d(x.mean((-2, -1), keepdim=True), weight, bias).relu()
    assert_same(torch.ops.ipex.excitation_run(x, context, [-2, -1]).flatten(), expected.flatten())
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.ops.ipex.excitation_run(x, context, [2, 3])
