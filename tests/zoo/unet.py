"""U-Net: down, up with transposed convolutions or bilinear upsampling, and across."""

import torch
from torch import Tensor, nn

from zoo.resnet import conv


def double_conv(width_in: int, width: int) -> nn.Module:
    """Two convolutions with relu."""
    relu = nn.ReLU(inplace=True)
    return nn.Sequential(*conv(width_in, width, 3), relu, *conv(width, width, 3), relu)


class Up(nn.Module):
    """Doubles the resolution, joins what comes across."""

    def __init__(self, width_in: int, width: int, kind: str) -> None:
        super().__init__()
        if kind == "transposed":
            self.up = nn.ConvTranspose2d(width_in, width, 2, stride=2)
        else:
            up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.up = nn.Sequential(up, nn.Conv2d(width_in, width, 1))
        self.conv = double_conv(2 * width, width)

    def forward(self, x: Tensor, across: Tensor) -> Tensor:
        return self.conv(torch.cat([across, self.up(x)], dim=1))


class UNet(nn.Module):
    """Three resolutions."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.top = double_conv(3, 8)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), double_conv(8, 16))
        self.down2 = nn.Sequential(nn.MaxPool2d(2), double_conv(16, 32))
        self.up1, self.up2 = Up(32, 16, kind), Up(16, 8, kind)
        self.classify = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.top(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        return self.classify(self.up2(self.up1(x3, x2), x1))
