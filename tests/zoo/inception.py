"""Inception V3: branches of convolutions of many shapes, joined along the channels."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Conv(nn.Module):
    """A convolution, its batch_norm, relu."""

    def __init__(self, width_in: int, width: int, kernel, stride: int = 1, padding=0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width_in, width, kernel, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(width, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)), inplace=True)


class MixedA(nn.Module):
    """1x1, 5x5, twice 3x3, pooling."""

    def __init__(self, width_in: int) -> None:
        super().__init__()
        self.b1 = Conv(width_in, 8, 1)
        self.b5 = nn.Sequential(Conv(width_in, 6, 1), Conv(6, 8, 5, padding=2))
        self.b3 = nn.Sequential(Conv(width_in, 8, 1), Conv(8, 12, 3, padding=1), Conv(12, 12, 3, padding=1))
        self.pool = Conv(width_in, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = F.avg_pool2d(x, kernel_size=3, stride=1, padding=1)
        return torch.cat([self.b1(x), self.b5(x), self.b3(x), self.pool(pooled)], 1)


class MixedB(nn.Module):
    """Half the resolution: strided convolutions and a pooling."""

    def __init__(self, width_in: int) -> None:
        super().__init__()
        self.b3 = Conv(width_in, 16, 3, stride=2)
        self.twice = nn.Sequential(Conv(width_in, 8, 1), Conv(8, 12, 3, padding=1), Conv(12, 12, 3, stride=2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.b3(x), self.twice(x), F.max_pool2d(x, kernel_size=3, stride=2)], 1)


class MixedC(nn.Module):
    """7x7 convolutions taken apart into 1x7 and 7x1."""

    def __init__(self, width_in: int) -> None:
        super().__init__()
        self.b1 = Conv(width_in, 16, 1)
        self.b7 = nn.Sequential(
            Conv(width_in, 8, 1), Conv(8, 8, (1, 7), padding=(0, 3)), Conv(8, 16, (7, 1), padding=(3, 0))
        )
        self.pool = Conv(width_in, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = F.avg_pool2d(x, kernel_size=3, stride=1, padding=1)
        return torch.cat([self.b1(x), self.b7(x), self.pool(pooled)], 1)


class MixedE(nn.Module):
    """3x3 convolutions spread over 1x3 and 3x1, side by side on one input."""

    def __init__(self, width_in: int) -> None:
        super().__init__()
        self.b1 = Conv(width_in, 16, 1)
        self.reduce = Conv(width_in, 12, 1)
        self.wide, self.high = Conv(12, 12, (1, 3), padding=(0, 1)), Conv(12, 12, (3, 1), padding=(1, 0))

    def forward(self, x: Tensor) -> Tensor:
        y = self.reduce(x)
        return torch.cat([self.b1(x), torch.cat([self.wide(y), self.high(y)], 1)], 1)


class Inception(nn.Module):
    """A stem, one block of each kind, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            Conv(3, 8, 3, stride=2),
            Conv(8, 8, 3),
            Conv(8, 16, 3, padding=1),
            nn.MaxPool2d(3, stride=2),
            MixedA(16),
            MixedB(32),
            MixedC(60),
            MixedE(48),
        )
        self.pool, self.dropout, self.classifier = nn.AdaptiveAvgPool2d((1, 1)), nn.Dropout(), nn.Linear(40, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.dropout(self.pool(self.features(x))), 1))
