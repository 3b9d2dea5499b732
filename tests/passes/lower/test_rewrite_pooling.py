import torch
import torch.nn.functional as F
from torch import nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "rewrite_pooling"
POOL = (
    "%two : int[] = prim::Constant[value=[2, 2]]()",
    "%zeros : int[] = prim::Constant[value=[0, 0]]()",
    "%ones : int[] = prim::Constant[value=[1, 1]]()",
    "%false : bool = prim::Constant[value=0]()",
    "%y : Tensor = aten::max_pool2d(%c, %two, %two, %zeros, %ones, %false)",
)
CONVERTED = ("%rank : int = prim::Constant[value=2]()", "%c : Tensor = ipex::to_channels_last(%x, %rank)")


def test_fires():
    result = assert_rewrites(NAME, graph_ir("%x : Tensor", *CONVERTED, *POOL, returns="%y"))
    assert result.count("ipex::max_pool2d") == 1
    assert result.count("aten::max_pool2d") == 0


def test_fires_for_contiguous_images():
    assert assert_rewrites(NAME, graph_ir("%c : Tensor", *POOL, returns="%y")).count("ipex::max_pool2d") == 1


def test_fires_for_rows():
    row = "%y : Tensor = aten::avg_pool1d(%c, %w, %w, %z, %false, %false)"
    ints = ("%w : int[] = prim::Constant[value=[2]]()", "%z : int[] = prim::Constant[value=[0]]()", POOL[3])
    assert assert_rewrites(NAME, graph_ir("%c : Tensor", *ints, row, returns="%y")).count("ipex::avg_pool1d") == 1
    check_against_eager(nn.AvgPool1d(3, 2, 1), torch.randn(2, 5, 40), also=(torch.randn(5, 40), torch.randn(2, 9, 5)))


AVERAGE = (
    "%one : int[] = prim::Constant[value=[1, 1]]()",
    "%y : Tensor = aten::adaptive_avg_pool2d(%c, %one)",
)


def test_fires_for_averages():
    result = assert_rewrites(NAME, graph_ir("%x : Tensor", *CONVERTED, *AVERAGE, returns="%y"))
    assert result.count("ipex::adaptive_avg_pool2d") == 1
    assert_unchanged(NAME, graph_ir("%c : Tensor", *AVERAGE, returns="%y"), reason="no image is channels-last")


def mean_of(dims: str, keepdim: int = 1) -> tuple[str, ...]:
    return (
        f"%dims : int[] = prim::Constant[value={dims}]()",
        f"%keepdim : bool = prim::Constant[value={keepdim}]()",
        "%none : NoneType = prim::Constant()",
        "%y : Tensor = aten::mean(%c, %dims, %keepdim, %none)",
    )


def test_fires_for_means_of_images():
    for dims in ("[2, 3]", "[3, 2]", "[-2, -1]", "[-1, -2]"):
        for keepdim in (0, 1):
            result = assert_rewrites(NAME, graph_ir("%x : Tensor", *CONVERTED, *mean_of(dims, keepdim), returns="%y"))
            assert result.count("ipex::mean") == 1


def test_declines_other_means():
    for dims in ("[1]", "[3]", "[1, 2]", "[2, -1]", "[1, 2, 3]"):
        ir = graph_ir("%x : Tensor", *CONVERTED, *mean_of(dims), returns="%y")
        assert_unchanged(NAME, ir, reason="it does not average whole images")


class Stem(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 20, 3), nn.Conv2d(20, 8, 1)
        self.pool = nn.MaxPool2d(3, 2, padding=1, ceil_mode=True)

    def forward(self, x):
        y = self.second(self.pool(torch.relu(self.first(x))))
        mean = y.mean((-1, -2), keepdim=True)
        return y, self.pool(x), F.adaptive_avg_pool2d(y, 1), mean, y.mean((-2, -1))


def test_matches_eager(tmp_path):
    x = torch.randn(2, 3, 20, 21)
    for script in (False, True):
        also = (x[:1], x.to(memory_format=torch.channels_last), x * torch.inf, x[0])
        optimized = check_against_eager(Stem(), x, script=script, also=also)
        assert kinds(optimized)["ipex::max_pool2d"] == 2
        assert kinds(optimized)["aten::max_pool2d"] == 0
        assert kinds(optimized)["ipex::adaptive_avg_pool2d"] == 1
        assert kinds(optimized)["ipex::mean"] == 2
        assert_round_trip(optimized, tmp_path, x)


class Pools(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.volume = nn.Conv2d(3, 20, 3), nn.Conv3d(3, 20, (1, 3, 3))
        self.pool = nn.AvgPool2d(3, 1, padding=1, count_include_pad=False)

    def forward(self, x):
        y = self.first(x)
        volume = x.unsqueeze(2)
        z = self.volume(volume)
        pooled = F.max_pool3d(z, (1, 2, 2)) + F.avg_pool3d(z, (1, 2, 2))
        return self.pool(y) - y, self.pool(x), pooled, F.avg_pool3d(volume, (1, 2, 3), ceil_mode=True)


def test_means_of_windows_and_volumes(tmp_path):
    x = torch.randn(2, 3, 20, 21)
    for script in (False, True):
        also = (x[:1], x.to(memory_format=torch.channels_last), x * torch.inf)
        optimized = check_against_eager(Pools(), x, script=script, also=also)
        found = kinds(optimized)
        assert (found["ipex::avg_pool2d"], found["ipex::max_pool3d"], found["ipex::avg_pool3d"]) == (2, 1, 2)
        assert_round_trip(optimized, tmp_path, x)


def test_indices_are_atens():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2, return_indices=True))
    optimized = check_against_eager(model, torch.randn(2, 3, 20, 21))
    assert kinds(optimized)["ipex::max_pool2d"] == 0


def test_can_be_switched_off():
    module = torch.jit.trace(Stem().eval(), torch.randn(1, 3, 20, 21))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::max_pool2d"] == 2
