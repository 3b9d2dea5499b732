import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from ir import PACKED, packed
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

STATISTICS = (
    "%gamma : Float(8, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
    "%eps : float = prim::Constant[value=9.9999999999999995e-06]()",
    "%momentum : float = prim::Constant[value=0.10000000000000001]()",
)
POOLED = "%mean : Tensor = aten::mean(%z, %sides, %false, %none)"  # of pixels: nobody sees strides
SIDES = "%sides : int[] = prim::Constant[value=[2, 3]]()"


def sum_of(a: str, b: str, op: str = "add", alpha: str = "one") -> str:
    return f"%z : Tensor = aten::{op}(%{a}, %{b}, %{alpha})"


def ir_of(*lines: str, returns: str = "%mean") -> str:
    return graph_ir("%x : Tensor", *PACKED, *packed("x", "y2", "2"), SIDES, *lines, POOLED, returns=returns)


@pytest.mark.parametrize("op", ["add", "add_", "sub", "sub_"])
def test_fires(op):
    result = assert_rewrites("fold_convolution_sums", ir_of(sum_of("y", "y2", op)))
    assert result.count("ipex::convolution_run") == 1
    assert result.count("aten::add") == result.count("aten::sub") == 0


def test_declines_another_image():
    other = graph_ir("%x : Tensor, %v : Tensor", *PACKED, *packed("v", "y2", "2"), sum_of("y", "y2"), returns="%z")
    assert_unchanged("fold_convolution_sums", other, reason=None)


def test_declines_a_second_reader():
    assert_unchanged("fold_convolution_sums", ir_of(sum_of("y", "y2"), returns="%mean, %y2"), reason="another reader")


def test_declines_another_alpha():
    ir = ir_of("%two : int = prim::Constant[value=2]()", sum_of("y", "y2", alpha="two"))
    assert_unchanged("fold_convolution_sums", ir, reason="alpha is not 1")


def test_declines_a_write_in_between():
    between = "%w2 : Tensor = aten::relu_(%x)"
    lines = (*PACKED, between, *packed("x", "y2", "2"), SIDES, sum_of("y", "y2"), POOLED)
    ir = graph_ir("%x : Tensor", *lines, returns="%mean")
    assert_unchanged("fold_convolution_sums", ir, reason="overwritten in between")


def test_declines_windows_of_which_none_holds_the_other():
    geometry = "%ones, %one, %false, %zeros, %post_ops2"
    ir = ir_of(sum_of("y", "y2")).replace(f"%zeros, {geometry}", f"%ones, {geometry}")
    assert_unchanged("fold_convolution_sums", ir, reason="neither window holds the other")


def test_declines_the_image_beside_a_dense_convolution():
    ir = graph_ir("%x : Tensor", *PACKED, SIDES, sum_of("y", "x"), POOLED, returns="%mean")
    assert_unchanged("fold_convolution_sums", ir, reason="not as many channels")


def lively(model: nn.Module) -> nn.Module:
    for norm in model.modules():
        if isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
    return model.eval()


def convolution(rank: int, *arguments: Any, norm: bool = True, **options: Any) -> nn.Module:
    made = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1](*arguments, **options)
    return nn.Sequential(made, batch_norm(rank, made.out_channels)) if norm else made


def batch_norm(rank: int, channels: int) -> nn.Module:
    return (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[rank - 1](channels)


class Branches(nn.Module):
    """Adds up what branches make of one image; then something that hides strides, or not."""

    def __init__(
        self,
        *branches: nn.Module,
        in_place: bool = False,
        sees: bool = False,
        minus: bool = False,
        activation: bool = True,
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.in_place, self.sees, self.minus, self.activation = in_place, sees, minus, activation

    def forward(self, x: Tensor) -> Tensor:
        y = self.branches[0](x)
        for branch in self.branches[1:]:
            if self.in_place:
                y += branch(x)
            else:
                y = y - branch(x) if self.minus else y + branch(x)
        y = F.gelu(y) if self.activation else y
        return y if self.sees else y.flatten(2).mean(2)


def check(tmp_path: Any, model: nn.Module, *images: Tensor, convolutions: int = 1) -> None:
    optimized = check_against_eager(lively(model), images[0], also=images[1:])
    assert kinds(optimized)["ipex::convolution_run"] == convolutions
    assert_round_trip(optimized, tmp_path, images[0])


@pytest.mark.parametrize("groups", [1, 4, 8])
@pytest.mark.parametrize("sees", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_repvgg(tmp_path, in_place, sees, groups):
    branches = (
        convolution(2, 8, 8, 3, padding=1, groups=groups, bias=False),
        convolution(2, 8, 8, 1, groups=groups, bias=False),
        batch_norm(2, 8),
    )
    x = torch.randn(2, 8, 6, 5)
    for order in itertools.permutations(branches):
        if in_place and isinstance(order[0], nn.BatchNorm2d):
            continue  # what a batch_norm gives is written to
        also = (x.to(memory_format=torch.channels_last), torch.randn(1, 8, 1, 1), torch.randn(3, 8, 1, 4))
        # One pixel is both contiguous and channels-last: an elementwise op gives it other strides than a convolution.
        one_pixel = torch.randn(2, 8, 1, 1).to(memory_format=torch.channels_last)
        for activation in (True, False):
            model = Branches(*order, in_place=in_place, sees=sees, activation=activation)
            check(tmp_path, model, x, *also, one_pixel)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_sum_that_begins_with_zero(tmp_path, in_place):
    """As sum([..]) does it, and MobileOne."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = convolution(2, 8, 8, 3, padding=1), convolution(2, 8, 8, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = 0 + self.a(x)
            y += self.b(x)
            y += 0
            return y if in_place else 0 + (y + 0)

    check(tmp_path, Sum(), torch.randn(2, 8, 6, 6), torch.randn(1, 8, 1, 1).to(memory_format=torch.channels_last))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_windows_of_many_sizes(tmp_path, rank):
    size = (2, 6, *(9, 8, 7)[:rank])
    branches = [convolution(rank, 6, 10, k, stride=2, padding=k // 2, norm=k != 3) for k in (1, 3, 5)]
    check(tmp_path, Branches(*branches), torch.randn(size))


def test_dilated_and_uneven_windows(tmp_path):
    branches = (
        convolution(2, 6, 6, (3, 5), padding=(2, 4), dilation=2),
        convolution(2, 6, 6, (1, 3), padding=(0, 2), dilation=2),
        convolution(2, 6, 6, (1, 1), dilation=3),
    )
    check(tmp_path, Branches(*branches), torch.randn(2, 6, 9, 9))


def test_windows_that_do_not_fit_stay_apart(tmp_path):
    crossed = (convolution(2, 4, 4, (1, 3), padding=(0, 1)), convolution(2, 4, 4, (3, 1), padding=(1, 0)))
    check(tmp_path, Branches(*crossed), torch.randn(2, 4, 6, 6), convolutions=2)


def test_differences(tmp_path):
    branches = (convolution(2, 8, 8, 7, padding=3, groups=8), batch_norm(2, 8), convolution(2, 8, 8, 1, groups=8))
    check(tmp_path, Branches(*branches, minus=True), torch.randn(2, 8, 9, 9))
    check(tmp_path, Branches(branches[1], branches[0], minus=True), torch.randn(2, 8, 9, 9))


def test_the_image_beside_a_depthwise_convolution_and_a_batch_norm_of_the_sum(tmp_path):
    """As in RepViT."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.large, self.small = convolution(2, 8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1, groups=8)
            self.norm = nn.BatchNorm2d(8)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm((self.large(x) + self.small(x)) + x).mean((2, 3))

    check(tmp_path, Block(), torch.randn(2, 8, 6, 6))


def test_the_image_stays_outside_where_its_strides_are_seen(tmp_path):
    model = Branches(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Identity(), sees=True)
    check(tmp_path, model, torch.randn(2, 8, 6, 6), torch.randn(2, 6, 8, 6).transpose(1, 2))


@pytest.mark.parametrize("channels", [1, 8])
def test_an_image_that_a_batch_norm_made_is_added_as_it_is(channels):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = lively(batch_norm(2, channels))
            self.convolution = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

        def forward(self, x: Tensor) -> Tensor:
            image = self.norm(x.abs())
            return (self.convolution(image) - image).mean((2, 3))

    optimized = check_against_eager(Model(), torch.randn(2, channels, 6, 6))
    assert "aten::sub" not in str(optimized.inlined_graph)


def test_an_image_without_a_batch():
    """A folded batch_norm takes rows for its channels then. Eager refuses it too, but for as many rows as channels."""
    plain = Branches(nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1), sees=True)
    check_against_eager(plain, torch.randn(2, 8, 6, 6), also=(torch.randn(8, 6, 6),))
    normal = Branches(convolution(2, 8, 8, 3, padding=1), convolution(2, 8, 8, 1), sees=True)
    optimized = check_against_eager(lively(normal), torch.randn(2, 8, 6, 6))
    with pytest.raises(RuntimeError, match="expected an input of 4 dimensions"):
        optimized(torch.randn(8, 6, 6))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.float16])
def test_dtype_under_autocast(in_place, given):
    """The image is float32, or what a convolution before made of it, or of the other 16 bits."""
    model = lively(Branches(convolution(2, 8, 8, 3, padding=1), batch_norm(2, 8), in_place=in_place, sees=True))
    x = torch.randn(2, 8, 6, 6)
    with torch.no_grad():
        optimized = ipex.jit_optimize(model, x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert optimized(x.to(given)).dtype == model(x.to(given)).dtype


def test_what_autocast_leaves_alone_is_rounded_to_no_16_bits():
    class Shifted(Branches):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1e5

    model = lively(Shifted(convolution(2, 8, 8, 3, padding=1), batch_norm(2, 8), sees=True))
    x = torch.randn(2, 8, 6, 6)
    with torch.no_grad():
        optimized = ipex.jit_optimize(model, x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(optimized(x), model(x), rtol=0, atol=0.1)


def test_an_empty_batch_in_a_dtype_that_was_given():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.last = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(6, 5)
            self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(8)])

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.norms[0](self.convolution(x)) + self.norms[1](x))

    x = torch.randn(2, 8, 6, 6)
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(Model().eval(), x), dtype=torch.bfloat16)
        assert optimized(x[:0]).shape == (0, 8, 6, 5)


def test_nan_stays(tmp_path):
    x = torch.randn(1, 8, 9, 9)
    x[0, 2, 4, 4] = float("nan")
    check_against_eager(lively(Branches(convolution(2, 8, 8, 3, padding=1), batch_norm(2, 8), sees=True)), x)


def test_16_bit_weights_stay_apart():
    model = Branches(nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)).bfloat16()
    x = torch.randn(2, 8, 6, 6).bfloat16()
    assert kinds(ipex.jit_optimize(model.eval(), x))["ipex::convolution_run"] == 2


def test_a_batch_norm_of_the_image_stays_out_of_quantised_weights():
    model = lively(Branches(convolution(2, 16, 16, 3, padding=1), convolution(2, 16, 16, 1), batch_norm(2, 16)))
    x = torch.randn(2, 16, 6, 6)
    prepared = ipex.quantization.prepare(model, x, ipex.quantization.Recipe(forced=True))
    prepared(x)
    quantized = ipex.quantization.convert(prepared)
    assert ipex.verify(model, quantized, x, tolerance=0.1)
    assert "ipex::batch_norm" in kinds(quantized)
