"""A chain of convolutions gives what its layers give one after the other, however it is called.

A profiler shows the layers where they run one by one, and nothing where they run at once.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex import FP32MathMode
from support import assert_same, calls_of, contexts, fallback_reasons, kinds, own_thread_count

# Between the layers of a block for such an image are more elements than the caches are trusted with.
SIDE = 150


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


class Block(nn.Module):
    """As in MobileNetV2."""

    def __init__(
        self,
        channels: int = 24,
        between: int = 48,
        *,
        window: int | tuple[int, int] = 3,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 1,
        dilation: int | tuple[int, int] = 1,
        activation: type[nn.Module] = nn.ReLU6,
        expands: bool = True,
        projects: bool = True,
        adds: bool = False,
    ) -> None:
        super().__init__()
        own = between if expands else channels
        depthwise = nn.Conv2d(own, own, window, stride, padding, dilation, groups=own)
        self.expand = nn.Sequential(nn.Conv2d(channels, own, 1), activation()) if expands else nn.Identity()
        self.depthwise = nn.Sequential(depthwise, activation())
        self.project = nn.Conv2d(own, channels, 1, bias=False) if projects else nn.Identity()
        self.adds = adds

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.depthwise(self.expand(x)))
        return y + x if self.adds else y


def image(images: int = 1, channels: int = 24, height: int = SIDE, width: int = SIDE) -> Tensor:
    return torch.randn(images, channels, height, width).to(memory_format=torch.channels_last)


def optimized(model: nn.Module, x: Tensor, **options: object) -> torch.jit.ScriptModule:
    chained = ipex.jit_optimize(torch.jit.trace(model.eval(), x, check_trace=False), **options)
    assert kinds(chained)["ipex::convolution_chain_run"] == 1
    assert kinds(chained)["ipex::convolution_run"] == 0
    return chained


def check(model: nn.Module, x: Tensor, at_once: bool = True) -> None:
    chained = optimized(model, x)
    before = x.clone()
    for _ in range(3):
        assert_same(chained(x), model(x))
    assert torch.equal(x.nan_to_num(), before.nan_to_num())
    assert (calls_of("ipex::convolution_run", chained, x) == 0) == at_once


@pytest.mark.parametrize("stride", [1, 2, 3, (1, 2)])
@pytest.mark.parametrize(("window", "padding"), [(3, 1), (5, 2), (7, 3), (2, 0), ((1, 3), (0, 1)), (4, 1), (1, 0)])
def test_windows(window, padding, stride):
    check(Block(window=window, stride=stride, padding=padding), image())


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("window", "padding"), [(9, 4), ((1, 11), (0, 5)), ((11, 1), (5, 0)), ((4, 13), (2, 6))])
def test_large_windows(window, padding, stride):
    check(Block(window=window, stride=stride, padding=padding, adds=stride == 1 and window != (4, 13)), image(width=60))


@pytest.mark.parametrize("stride", [1, 2, (1, 2)])
@pytest.mark.parametrize("dilation", [2, 3, (1, 4), (3, 1)])
def test_windows_with_gaps(dilation, stride):
    check(Block(stride=stride, padding=2, dilation=dilation), image(width=60))


def test_strips_that_keep_many_rows():
    """A strip of tall windows on a wide image is a single row, which costs more than it saves."""
    check(Block(window=9, padding=4), image(), at_once=False)
    check(Block(padding=4, dilation=4), image(), at_once=False)


@pytest.mark.parametrize(("channels", "between"), [(24, 47), (16, 49), (33, 64), (40, 129), (8, 40)])
def test_channels_that_do_not_fill_registers(channels, between):
    model = Block(channels, between)
    # Where oneDNN packs a weight so that kernels of our own can't read it, the layers run one by one: see test_product.
    x = image(channels=channels)
    assert_same(optimized(model, x)(x), model(x))


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("images", [1, 2, 5])
def test_images_and_residuals(images, adds):
    check(Block(adds=adds), image(images))


@pytest.mark.parametrize(("expands", "projects"), [(True, False), (False, True)])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_layer_that_is_not_there(expands, projects, stride):
    check(Block(48, 48, expands=expands, projects=projects, stride=stride), image(channels=48))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU, nn.Hardswish, nn.GELU, nn.Sigmoid, nn.Identity, nn.LeakyReLU])
def test_activations(activation):
    check(Block(activation=activation), image())


def test_activations_that_kernels_lack():
    check(Block(activation=lambda: nn.Softplus(threshold=100)), image(), at_once=False)


@pytest.mark.parametrize(("height", "width"), [(4, 5600), (5600, 4), (61, 2), (7, 3200), (2, 2)])
def test_shapes(height, width):
    model = Block(window=5, padding=2, adds=True)
    check(model, image(1, 24, height, width), at_once=48 * height * width >= 64 * 1024)


def test_where_it_is_worth_it():
    chained = optimized(Block(), image())
    assert calls_of("ipex::convolution_run", chained, image(height=9)) == 3  # 48 channels of 9 x 150 pixels
    assert calls_of("ipex::convolution_run", chained, image(height=9, images=2)) == 0
    assert calls_of("ipex::convolution_run", optimized(Block(256, 512), image(channels=256)), image(channels=256)) == 3


def test_padding_of_two_widths():
    model = nn.Sequential(nn.Conv2d(24, 48, 1), nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(48, 48, 3, groups=48)).eval()
    check(model, image())


def test_padding_wider_than_the_window():
    check(Block(window=3, padding=3), image(), at_once=False)


def test_layouts():
    model = Block(adds=True)
    chained = optimized(model, image())
    x = torch.randn(2, 24, SIDE, SIDE)
    wide = image(2, 24, SIDE, 2 * SIDE)
    for y in (x, x[0], wide[..., ::2], x.transpose(2, 3), x[:1].expand(2, -1, -1, -1), x[:0], image()[:, :, :1]):
        assert_same(chained(y), model(y))
    # A contiguous image is converted at the borders of the block, and the layers still run at once.
    assert calls_of("ipex::convolution_run", chained, x) == 0


def test_without_stretches_that_stay_channels_last():
    model = Block(adds=True).eval()
    module = torch.jit.trace(model, image(), check_trace=False)
    chained = ipex.jit_optimize(module, disable=["keep_channels_last"])
    assert kinds(chained)["ipex::convolution_chain_run"] == 1
    row = image(1, height=1, width=SIDE * SIDE)
    # Of the stride of one row eager asks all the same, and takes this image for contiguous.
    odd = row.as_strided(row.shape, (row.stride(0), 1, 1, row.stride(3)))
    for x in (image(), torch.randn(1, 24, SIDE, SIDE), row, odd):
        assert_same(chained(x), model(x))
    assert calls_of("ipex::convolution_run", chained, image()) == 0
    assert calls_of("ipex::convolution_run", chained, torch.randn(1, 24, SIDE, SIDE)) == 3


def test_nan_and_infinity():
    x = image()
    x[0, 3, 5, 5], x[0, 4, 30, 59], x[0, 5, 0, 0] = float("nan"), float("inf"), -float("inf")
    for activation in (nn.ReLU6, nn.ReLU, nn.Identity):
        check(Block(activation=activation, adds=True), x)


def test_bf32_is_for_each_layer_to_decide():
    model = Block()
    chained = optimized(model, image(), fp32_math_mode=FP32MathMode.BF32)
    x = image()
    assert_same(chained(x), model(x), tolerance=2**-6)


def test_autocast_and_gradients_are_atens_matter():
    model, x = Block().eval(), image()
    chained = optimized(model, x)
    with torch.enable_grad():
        gradients = []
        for module in (chained, model):
            leaf = x.clone().requires_grad_()
            module(leaf).sum().backward()
            gradients.append(leaf.grad)
        assert_same(*gradients)
    with torch.autocast("cpu", torch.bfloat16):
        assert chained(x).dtype == model(x).dtype == torch.bfloat16
    assert set(fallback_reasons(chained)) == {"the input requires a gradient", "autocast is on",
                                              "the input is not a float32 CPU tensor"}  # fmt: skip


def test_results_are_fresh_and_threads_agree():
    x, model = image(3), Block(adds=True)
    chained = optimized(model, x)
    first = chained(x)
    expected = first.clone()
    chained(image(3))
    assert torch.equal(first, expected)
    with own_thread_count():
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            assert_same(chained(x), expected, tolerance=0)
    with ThreadPoolExecutor(4) as pool:
        for y in pool.map(torch.inference_mode()(chained), [x] * 16):
            assert_same(y, expected, tolerance=0)


def test_copied_and_loaded(tmp_path):
    x = image()
    chained = optimized(Block(adds=True), x)
    chained.save(tmp_path / "model.pt")
    for again in (copy.deepcopy(chained), copy.copy(chained), ipex.load(tmp_path / "model.pt")):
        assert_same(again(x), chained(x), tolerance=0)
        assert [c.describe() for c in contexts(again)] == [c.describe() for c in contexts(chained)]


def test_another_number_of_channels_is_an_error_of_the_first_layer():
    chained = optimized(Block(), image())
    with pytest.raises(RuntimeError, match=r"ipex::convolution_run: expected input of 4 dimensions.* with 24 channels"):
        chained(image(channels=48))


def test_refuses_an_empty_chain():
    with pytest.raises(RuntimeError, match="expected at least one layer, got none"):
        torch.ops.ipex.convolution_chain_prepack([])


def test_refuses_layers_that_do_not_fit_together():
    first = optimized(Block(24, 48), image()).packed_0.layers()[0]
    with pytest.raises(RuntimeError, match="got one of 48 channels before one for 24"):
        torch.ops.ipex.convolution_chain_prepack([first, first])


def test_tells_what_it_is_made_of():
    chained = optimized(Block(), image())
    layers = ", ".join(context.describe() for context in contexts(chained))
    assert repr(chained.packed_0) == f"ipex::convolution_chain_run({layers})"
    assert layers.count("weight=") == 3
