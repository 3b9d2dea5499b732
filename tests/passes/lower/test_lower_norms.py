import pytest
import torch
from torch import Tensor, nn

import ipex
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_same,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    kinds,
)

pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # group_norm looks at its sizes
NAME = "lower_norms"
INPUTS = "%x : Tensor, %g : int, %w : Tensor?, %b : Tensor?, %e : float, %c : bool"
CONSTANTS = ("%none : NoneType = prim::Constant()", "%true : bool = prim::Constant[value=1]()")
INSTANCE = "%y : Tensor = aten::instance_norm(%x, %w, %b, %none, %none, %true, %e, %e, %c)"
NATIVE = "%y : Tensor, %m : Tensor, %r : Tensor = aten::native_group_norm(%x, %w, %b, %g, %g, %g, %g, %e)"


def test_fires():
    graph = graph_ir(INPUTS, "%y : Tensor = aten::group_norm(%x, %g, %w, %b, %e, %c)", returns="%y")
    assert assert_rewrites(NAME, graph).count("ipex::group_norm") == 1


def test_fires_on_instance_norm():
    assert assert_rewrites(NAME, graph_ir(INPUTS, *CONSTANTS, INSTANCE, returns="%y")).count("ipex::instance_norm") == 1


def test_fires_where_nobody_reads_the_statistics():
    result = assert_rewrites(NAME, graph_ir(INPUTS, NATIVE, returns="%y"))
    assert result.count("ipex::native_group_norm") == 1
    assert result.count("aten::native_group_norm") == 0


def test_declines_statistics_that_are_read():
    assert_unchanged(NAME, graph_ir(INPUTS, NATIVE, returns="%y, %r"), reason="its statistics are read")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [("%true", "%c", "reads running statistics"), ("%none, %none", "%w, %w", "updates running statistics")],
)
def test_declines_running_statistics(old, new, reason):
    assert_unchanged(NAME, graph_ir(INPUTS, *CONSTANTS, INSTANCE.replace(old, new), returns="%y"), reason=reason)


class Norms(nn.Module):
    """Norms with one reader and with two, and what may follow them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 1)
        self.first, self.second, self.third = nn.GroupNorm(1, 3), nn.GroupNorm(4, 8), nn.InstanceNorm2d(8, affine=True)
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = self.conv(self.first(x).relu_())
        b = nn.functional.silu(self.second(a))
        c = self.third(torch.max_pool2d(b, 2))
        return self.last(nn.functional.leaky_relu(self.third(b), 0.1)), torch.relu(c), c


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script):
    x = torch.randn(2, 3, 6, 8)
    also = (x[:, :, ::2], x.transpose(2, 3), x[:1])
    optimized = check_against_eager(Norms(), x, script=script, also=also)
    found = kinds(optimized)
    assert found["ipex::group_norm"] == 2
    # c has another reader. Scripted, an instance_norm stands in the branches of an if, and what follows it does not.
    assert found["ipex::instance_norm"] == (4 if script else 2)
    assert found["aten::leaky_relu"] == int(script)
    assert found["aten::relu"] == 1
    assert found["aten::silu"] == found["aten::relu_"] == 0
    assert_round_trip(optimized, tmp_path, x)


def test_an_image_that_is_channels_last_already():
    # aten's own values for it have fewer digits: what counts are those for a contiguous one, in eager's layout.
    x, model = torch.randn(2, 3, 6, 8), Norms().eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, x))
    with torch.no_grad():
        image = x.contiguous(memory_format=torch.channels_last)
        for ours, eager, values in zip(optimized(image), model(image), model(x)):
            assert_same(ours, eager.copy_(values))


def test_stays_in_a_stretch():
    def convolved(norm: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Conv2d(6, 8, 3), norm, nn.ReLU(), nn.Conv2d(8, 8, 3), nn.MaxPool2d(2))

    for norm in (nn.GroupNorm(2, 8), nn.InstanceNorm2d(8)):
        optimized = check_against_eager(convolved(norm), torch.randn(2, 6, 19, 19))
        assert kinds(optimized)["ipex::to_channels_last"] == kinds(optimized)["ipex::restore_layout"] == 1
        assert kinds(optimized)["aten::relu"] == 0


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_rank(rank):
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1]
    instance = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[rank - 1]
    for norm in (instance(8), nn.GroupNorm(4, 8)):
        model = nn.Sequential(conv(3, 8, 3), norm, nn.SiLU(), conv(8, 5, 3))
        optimized = check_against_eager(model, torch.randn(2, 3, *[9] * rank))
        assert kinds(optimized)["aten::silu"] == 0


def test_a_running_mean_is_left_to_aten():
    norm = nn.InstanceNorm2d(4, track_running_stats=True).eval()
    optimized = check_against_eager(nn.Sequential(nn.Conv2d(3, 4, 1), norm), torch.randn(2, 3, 5, 5))
    assert kinds(optimized)["aten::instance_norm"] == 1


def test_traced_below_autograd():
    class Native(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(torch.native_group_norm(x, None, None, 2, 6, 20, 3, 1e-5)[0])

    optimized = check_against_eager(Native(), torch.randn(2, 6, 4, 5))
    assert kinds(optimized)["ipex::native_group_norm"] == 1
    assert kinds(optimized)["aten::relu"] == 0


def test_can_be_switched_off():
    x = torch.randn(2, 8, 5, 5)
    model = nn.Sequential(nn.Conv2d(8, 8, 1), nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 1)).eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, x), disable=[NAME])
    assert kinds(optimized)["aten::group_norm"] == 1
    with torch.no_grad():
        assert_same(optimized(x), model(x))
