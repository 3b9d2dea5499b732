"""A convolution of few input channels takes its image in any layout."""

import pytest
import torch
from torch import Tensor, nn

import ipex
from ir import CONSTANTS, packed
from support import assert_rewrites, assert_unchanged, check_against_eager, contexts, graph_ir, kinds

NAME = "read_images_as_they_lie"
CONVERT = "ipex::to_channels_last"
CONVERSION = (*CONSTANTS, "%two : int = prim::Constant[value=2]()", f"%c : Tensor = {CONVERT}(%x, %two)")


def test_fires():
    ir = graph_ir("%x : Tensor", *CONVERSION, *packed("c", "y", "1"), returns="%y")
    result = assert_rewrites(NAME, ir)
    assert result.count(CONVERT) == 0


def test_declines_where_the_image_is_overwritten():
    ir = graph_ir("%x : Tensor", *CONVERSION, "%z : Tensor = aten::relu_(%x)", *packed("c", "y", "1"), returns="%y, %z")
    assert_unchanged(NAME, ir, reason="may be overwritten")


def test_leaves_weights_of_16_bits():
    ir = graph_ir("%x : Tensor", *CONVERSION, *packed("c", "y", "1"), returns="%y")
    assert_unchanged(NAME, ir.replace("Float(8, 4,", "BFloat16(8, 4,"), reason=None)


def convert_count(model: nn.Module, x: Tensor) -> int:
    return kinds(check_against_eager(model, x))[CONVERT]


class Model(nn.Module):
    def __init__(self, channels: int, results: int = 16, window: int = 3) -> None:
        super().__init__()
        self.first, self.next = nn.Conv2d(channels, results, window, 2, 1), nn.Conv2d(results, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.next(torch.relu(self.first(x)))


@pytest.mark.parametrize(("channels", "window", "count"), [(3, 3, 0), (1, 7, 0), (4, 5, 0), (8, 3, 1), (3, 7, 1)])
def test_the_first_convolution(channels, window, count):
    assert convert_count(Model(channels, window=window), torch.randn(2, channels, 21, 23)) == count


def test_other_readers_get_the_image_channels_last():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.other = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(3, 16, 9, 2, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x) + self.other(x)

    assert convert_count(Two(), torch.randn(2, 3, 21, 23)) == 1


def test_in_16_bits_it_is_converted():
    x = torch.randn(2, 3, 21, 23)
    with torch.no_grad():
        traced = torch.jit.trace(Model(3).eval(), x)
        optimized = ipex.jit_optimize(traced, dtype=torch.bfloat16)
    assert kinds(optimized)[CONVERT] == 1


@pytest.mark.parametrize("results", [4, 8, 32, 48, 64])
@pytest.mark.parametrize(("window", "stride"), [(1, 1), (3, 1), (3, 2), (4, 4), (5, 1), (5, 2), (7, 2), (8, 8), (3, 5)])
@pytest.mark.parametrize("channels", [1, 3, 4, 5])
def test_the_pass_takes_what_the_kernel_takes(channels, window, stride, results):
    """Each has the rule: where the pass leaves the conversion, oneDNN makes a primitive, but for single pixels."""
    layers = nn.Sequential(nn.Conv2d(channels, results, window, stride), nn.Conv2d(results, 8, 1)).eval()
    x = torch.randn(1, channels, 33, 40)
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(layers, x))
        optimized(x)
    is_ours = window > 1 and contexts(optimized)[0].cached_primitives() == 0
    assert (kinds(optimized)[CONVERT] == 0) == is_ours
