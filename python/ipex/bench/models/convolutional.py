"""ResNet-50, MobileNetV2, VGG-16, DenseNet-121 and a U-Net with transposed convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 1000


def conv(width_in: int, width: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution without bias and its batch_norm."""
    return [nn.Conv2d(width_in, width, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(width)]


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a residual."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.layers = nn.Sequential(
            *conv(width_in, width, 1), self.relu, *conv(width, width, 3, stride), self.relu, *conv(width, 4 * width, 1)
        )
        same = stride == 1 and width_in == 4 * width
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv(width_in, 4 * width, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y: Tensor = self.layers(x)
        y += self.shortcut(x)
        return self.relu(y)  # type: ignore[no-any-return]


def resnet50() -> nn.Module:
    """25.6 million parameters."""
    layers: list[nn.Module] = [*conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    width_in = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for i in range(count):
            layers.append(Bottleneck(width_in, width, 2 if stage > 0 and i == 0 else 1))
            width_in = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width_in, CLASSES))


class InvertedResidual(nn.Module):
    """Widen, a depthwise convolution, narrow; the residual is between the narrow ends."""

    def __init__(self, width_in: int, width: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = width_in * expansion
        widen: list[nn.Module] = [*conv(width_in, wide, 1), nn.ReLU6(inplace=True)] if expansion > 1 else []
        depthwise = [*conv(wide, wide, 3, stride, groups=wide), nn.ReLU6(inplace=True)]
        self.layers = nn.Sequential(*widen, *depthwise, *conv(wide, width, 1))
        self.is_residual = stride == 1 and width_in == width

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y: Tensor = self.layers(x)
        return x + y if self.is_residual else y


def mobilenet_v2() -> nn.Module:
    """3.5 million parameters."""
    layers: list[nn.Module] = [*conv(3, 32, 3, 2), nn.ReLU6(inplace=True)]
    width_in = 32
    # expansion, width, number of blocks, stride of the first
    for expansion, width, count, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for i in range(count):
            layers.append(InvertedResidual(width_in, width, expansion, stride if i == 0 else 1))
            width_in = width
    layers += [*conv(320, 1280, 1), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(1280, CLASSES))


def vgg16() -> nn.Module:
    """138 million parameters, most of them in the first linear layer."""
    layers: list[nn.Module] = []
    width_in = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(width_in, width, 3, padding=1), nn.ReLU(inplace=True)]
            width_in = width
        layers.append(nn.MaxPool2d(2, 2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, CLASSES))


class DenseLayer(nn.Module):
    """Reads all earlier features of its block, adds `growth` channels."""

    def __init__(self, width_in: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(width_in), nn.Conv2d(width_in, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        """Compute the new channels."""
        y = self.conv1(F.relu(self.norm1(torch.cat(features, 1)), inplace=True))
        return self.conv2(F.relu(self.norm2(y), inplace=True))  # type: ignore[no-any-return]


class DenseBlock(nn.Module):
    """Dense layers, one after the other."""

    def __init__(self, layers: int, width_in: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(width_in + i * growth, growth) for i in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


def densenet121() -> nn.Module:
    """8.0 million parameters."""
    growth, width = 32, 64
    layers: list[nn.Module] = [*conv(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    for stage, count in enumerate((6, 12, 24, 16)):
        if stage > 0:
            halve = nn.Conv2d(width, width // 2, 1, bias=False)
            layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True), halve, nn.AvgPool2d(2, 2)]
            width //= 2
        layers.append(DenseBlock(count, width, growth))
        width += count * growth
    layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def double_conv(width_in: int, width: int) -> nn.Module:
    """Two convolutions with relu."""
    return nn.Sequential(
        *conv(width_in, width, 3), nn.ReLU(inplace=True), *conv(width, width, 3), nn.ReLU(inplace=True)
    )


class UNet(nn.Module):
    """Down by pooling, up by transposed convolutions, and across."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.top = double_conv(3, widths[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), double_conv(a, b)) for a, b in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(pairs))
        self.join = nn.ModuleList(double_conv(2 * a, a) for a, _ in reversed(pairs))
        self.classify = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Give each pixel a score for each of two classes."""
        levels = [self.top(x)]
        for down in self.down:
            levels.append(down(levels[-1]))
        y = levels.pop()
        for up, join in zip(self.up, self.join):
            y = join(torch.cat([levels.pop(), up(y)], 1))
        return self.classify(y)  # type: ignore[no-any-return]


def unet() -> nn.Module:
    """Five resolutions, half as wide as in the paper."""
    return UNet((32, 64, 128, 256, 512))
