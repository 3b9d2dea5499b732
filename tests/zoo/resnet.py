"""ResNet and, with groups, ResNeXt."""

import torch
from torch import Tensor, nn


def conv(width_in: int, width: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution without bias and its batch_norm."""
    return [nn.Conv2d(width_in, width, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(width)]


class Block(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3 and 1x1 ones, around a residual."""

    def __init__(self, kind: str, width_in: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        relu = nn.ReLU(inplace=True)
        if kind == "basic":
            width_out = width
            layers = [*conv(width_in, width, 3, stride), relu, *conv(width, width, 3)]
        else:
            width_out = 4 * width
            layers = [*conv(width_in, width, 1), relu, *conv(width, width, 3, stride, groups), relu]
            layers += conv(width, width_out, 1)
        self.width_out = width_out
        self.layers = nn.Sequential(*layers)
        same = stride == 1 and width_in == width_out
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv(width_in, width_out, 1, stride))
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        y += self.shortcut(x)
        return self.relu(y)


class ResNet(nn.Module):
    """A stem, a stage for each number of blocks, a classifier."""

    def __init__(self, kind: str, blocks: tuple[int, ...], groups: int = 1, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1))
        stages: list[Block] = []
        width_in = width
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(Block(kind, width_in, width * 2**stage, stride, groups))
                width_in = stages[-1].width_out
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.classifier = nn.Linear(width_in, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.pool(self.stages(self.stem(x))), 1))
