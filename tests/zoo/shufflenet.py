"""ShuffleNet V2: each block works on one half of the channels, then the halves are shuffled."""

import torch
from torch import Tensor, nn

from zoo.resnet import conv


def shuffle(x: Tensor) -> Tensor:
    """Interleave the two halves of the channels."""
    batch, channels, height, width = x.size()
    x = x.view(batch, 2, channels // 2, height, width)
    return torch.transpose(x, 1, 2).contiguous().view(batch, channels, height, width)


class Block(nn.Module):
    """With a stride both halves are convolved, without one half passes through."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        half = width // 2
        self.stride = stride
        self.left = (
            nn.Sequential(*conv(width_in, width_in, 3, 2, width_in), *conv(width_in, half, 1), nn.ReLU(inplace=True))
            if stride == 2
            else nn.Identity()
        )
        self.right = nn.Sequential(
            *conv(width_in if stride == 2 else half, half, 1),
            nn.ReLU(inplace=True),
            *conv(half, half, 3, stride, half),
            *conv(half, half, 1),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 1:
            left, right = x.chunk(2, dim=1)
            return shuffle(torch.cat((left, self.right(right)), dim=1))
        return shuffle(torch.cat((self.left(x), self.right(x)), dim=1))


class ShuffleNet(nn.Module):
    """A stem, two stages, a last convolution, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *conv(3, 12, 3, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
            Block(12, 24, 2),
            Block(24, 24, 1),
            Block(24, 48, 2),
            Block(48, 48, 1),
            *conv(48, 64, 1),
            nn.ReLU(inplace=True),
        )
        self.classifier = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean([2, 3]))
