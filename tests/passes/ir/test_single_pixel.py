"""Gates that are computed from one pixel, and spread over an image, stay out of the packed op that computes them."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ir import CONSTANTS, packed
from support import (
    assert_round_trip,
    assert_unchanged,
    check_against_eager,
    fallback_reasons,
    graph_ir,
    kinds,
    packed_post_ops,
)

POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.mean((2, 3), keepdim=True),
    "mean from the end": lambda x: x.mean((-1, -2), keepdim=True),
    "amax": lambda x: x.amax((2, 3), keepdim=True),
    "average pool": lambda x: F.adaptive_avg_pool2d(x, 1),
    "view": lambda x: x.mean((2, 3)).view(x.size(0), x.size(1), 1, 1),
    "sum of pools": lambda x: x.mean((2, 3), keepdim=True) + F.adaptive_avg_pool2d(x, 1).relu() * 0.5,
}
USES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "image * gate + image, relu": lambda x, gate: F.relu(x * gate + x),
    "gate * image, relu6": lambda x, gate: F.relu6(gate * x),
    "gate + image, silu": lambda x, gate: F.silu(gate + x),
}


class Gated(nn.Module):
    def __init__(self, pool: Callable[[Tensor], Tensor], use: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 5, 1)
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.pool, self.use = pool, use

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(self.pool(x)))))
        return self.last(self.use(x, gate))


def check_stays_out(model: nn.Module, *inputs: Tensor, also: tuple[Tensor, ...] = ()) -> torch.jit.ScriptModule:
    optimized = check_against_eager(model, *inputs, also=also)
    assert {post_op for names in packed_post_ops(optimized) for post_op in names} <= {"relu", "sigmoid"}
    assert kinds(optimized)["ipex::elementwise"] >= 1
    assert not fallback_reasons(optimized)
    return optimized


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("pool", POOLS)
def test_gates_of_images(pool, use, tmp_path):
    x = torch.randn(2, 3, 8, 9)
    also = (x[:1], x.contiguous(memory_format=torch.channels_last))
    optimized = check_stays_out(Gated(POOLS[pool], USES[use]), x, also=also)
    assert kinds(optimized)["aten::mul"] == 0
    assert_round_trip(optimized, tmp_path, x)


def test_says_why():
    lines = (
        "%sides : int[] = prim::Constant[value=[2, 3]]()",
        "%m : Tensor = aten::mean(%x, %sides, %true, %none)",
        *packed("m", "y", "1"),
        "%z : Tensor = aten::mul(%o, %y)",
    )
    ir = graph_ir("%x : Tensor, %o : Tensor", *CONSTANTS, *lines, returns="%z").replace(
        "3, 3, strides=[36, 9, 3, 1]", "1, 1, strides=[4, 1, 1, 1]"
    )
    assert_unchanged("fuse_arithmetic", ir, reason="one pixel, which is spread over an image")


class OfMeans(nn.Module):
    """Rows of one number, the mean of each: no pixel, as all of them are there."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 8)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        return self.linear(x.mean(-1, keepdim=True)) * other


def test_a_mean_over_features_is_no_pixel():
    optimized = check_against_eager(OfMeans(), torch.randn(2, 5, 7), torch.randn(2, 5, 8))
    assert packed_post_ops(optimized) == [["mul"]]


class ManyResiduals(nn.Module):
    """Both sides of each sum lead back to the same pixel: followed to the end, they would be 2 ** 48 ways."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(48))

    def forward(self, x: Tensor) -> Tensor:
        gate = x.mean((2, 3), keepdim=True)
        for layer in self.layers:
            gate = gate + 0.1 * layer(gate).relu()
        return x * gate


def test_many_residuals_are_not_followed_to_both_sides():
    check_against_eager(ManyResiduals().eval(), torch.randn(2, 8, 5, 5))


class GatedTokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate = nn.Linear(6, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return F.relu(x * torch.sigmoid(self.gate(x.mean((1, 2), keepdim=True))))


def test_gates_of_tokens():
    check_stays_out(GatedTokens(), torch.randn(2, 5, 7, 6))


class WithPixel(nn.Module):
    """Both factors are of one pixel, or one is a constant."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.a, self.b = (nn.Conv2d(4, 6, window, padding=window // 2) for _ in range(2))
        self.scale = nn.Parameter(torch.randn(1, 6, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        pooled = x.mean((2, 3), keepdim=True)
        return self.a(pooled) * self.b(pooled.relu()) + self.scale


def test_pixels_are_still_fused():
    optimized = check_against_eager(WithPixel(1), torch.randn(2, 4, 5, 6))
    assert sorted(map(len, packed_post_ops(optimized))) == [0, 2]


@pytest.mark.parametrize(
    "pool", [lambda x: x.mean((3,), keepdim=True), lambda x: F.adaptive_avg_pool2d(x, (1, 4)), lambda x: x]
)
def test_other_images_are_still_fused(pool):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return F.relu(self.convolution(pool(x)) * y)

    x = torch.randn(1, 3, 4, 4)
    optimized = check_against_eager(Model(), x, torch.randn_like(pool(x)))
    assert packed_post_ops(optimized) == [["mul", "relu"]]
