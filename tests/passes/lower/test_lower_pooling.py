"""lower_ops on pools, and averages of whole images."""

import torch
import torch.nn.functional as F
from torch import nn

import ipex
from support import assert_round_trip, check_against_eager, kinds


def test_pools_of_rows():
    check_against_eager(nn.AvgPool1d(3, 2, 1), torch.randn(2, 5, 40), also=(torch.randn(5, 40), torch.randn(2, 9, 5)))


class Stem(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 20, 3), nn.Conv2d(20, 8, 1)
        self.pool = nn.MaxPool2d(3, 2, padding=1, ceil_mode=True)

    def forward(self, x):
        y = self.second(self.pool(torch.relu(self.first(x))))
        mean = y.mean((-1, -2), keepdim=True)
        return y, self.pool(x), F.adaptive_avg_pool2d(y, 1), mean, y.mean((-2, -1))


def test_pools(tmp_path):
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


def test_pools_can_be_switched_off():
    module = torch.jit.trace(Stem().eval(), torch.randn(1, 3, 20, 21))
    assert kinds(ipex.jit_optimize(module, disable=["ipex::max_pool2d"]))["aten::max_pool2d"] == 2
