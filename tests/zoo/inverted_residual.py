"""MobileNet V2 and V3, EfficientNet: inverted residuals, each with its activation, some with squeeze-excite."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SqueezeExcite(nn.Module):
    """Scales each channel by what the whole image says about it."""

    def __init__(self, width: int, squeezed: int, activation: type[nn.Module], gate: type[nn.Module]) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce, self.activation = nn.Conv2d(width, squeezed, 1), activation()
        self.expand, self.gate = nn.Conv2d(squeezed, width, 1), gate()

    def forward(self, x: Tensor) -> Tensor:
        scale = self.gate(self.expand(self.activation(self.reduce(self.pool(x)))))
        return scale * x


def conv(width_in: int, width: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution without bias and its batch_norm."""
    return [
        nn.Conv2d(width_in, width, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(width, eps=0.001),
    ]


class InvertedResidual(nn.Module):
    """Widen, a depthwise convolution, perhaps squeeze-excite, narrow; the residual is between the narrow ends."""

    def __init__(self, width_in, width, expansion, kernel, stride, activation, squeeze_excite=None) -> None:
        super().__init__()
        wide = width_in * expansion
        layers: list[nn.Module] = [*conv(width_in, wide, 1), activation(inplace=True)] if expansion > 1 else []
        layers += [*conv(wide, wide, kernel, stride, groups=wide), activation(inplace=True)]
        if squeeze_excite:
            layers.append(squeeze_excite(wide))
        self.layers = nn.Sequential(*layers, *conv(wide, width, 1))
        self.is_residual = stride == 1 and width_in == width

    def forward(self, x: Tensor) -> Tensor:
        if self.is_residual:
            return x + self.layers(x)
        return self.layers(x)


class InvertedResidualNet(nn.Module):
    """A stem, the blocks, a last convolution, a classifier."""

    def __init__(self, blocks: list[nn.Module], ends: tuple[int, int], activation, classifier: nn.Module) -> None:
        super().__init__()
        first, last = ends
        self.features = nn.Sequential(
            *conv(3, first, 3, 2), activation(inplace=True), *blocks, *conv(last, 48, 1), activation(inplace=True)
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.pool(self.features(x)), 1))


def mobilenet_v2() -> nn.Module:
    """relu6, no squeeze-excite."""
    act = nn.ReLU6
    blocks = [
        InvertedResidual(16, 8, 1, 3, 1, act),
        InvertedResidual(8, 12, 6, 3, 2, act),
        InvertedResidual(12, 12, 6, 3, 1, act),
        InvertedResidual(12, 16, 6, 3, 2, act),
        InvertedResidual(16, 16, 6, 3, 1, act),
    ]
    return InvertedResidualNet(blocks, (16, 16), act, nn.Sequential(nn.Dropout(0.2), nn.Linear(48, 10)))


def mobilenet_v3() -> nn.Module:
    """Relu in the early blocks, hardswish later; squeeze-excite with hardsigmoid; a classifier of two layers."""

    def squeeze_excite(width: int) -> nn.Module:
        return SqueezeExcite(width, width // 4, nn.ReLU, nn.Hardsigmoid)

    blocks = [
        InvertedResidual(16, 16, 1, 3, 2, nn.ReLU, squeeze_excite),
        InvertedResidual(16, 24, 4, 3, 2, nn.ReLU),
        InvertedResidual(24, 24, 4, 3, 1, nn.ReLU),
        InvertedResidual(24, 32, 4, 5, 2, nn.Hardswish, squeeze_excite),
        InvertedResidual(32, 32, 4, 5, 1, nn.Hardswish, squeeze_excite),
    ]
    classifier = nn.Sequential(nn.Linear(48, 64), nn.Hardswish(inplace=True), nn.Dropout(0.2), nn.Linear(64, 10))
    return InvertedResidualNet(blocks, (16, 32), nn.Hardswish, classifier)


def efficientnet() -> nn.Module:
    """Swish everywhere, squeeze-excite with sigmoid in every block."""

    def squeeze_excite(width: int) -> nn.Module:
        return SqueezeExcite(width, width // 4, nn.SiLU, nn.Sigmoid)

    blocks = [
        InvertedResidual(16, 8, 1, 3, 1, nn.SiLU, squeeze_excite),
        InvertedResidual(8, 12, 6, 3, 2, nn.SiLU, squeeze_excite),
        InvertedResidual(12, 12, 6, 3, 1, nn.SiLU, squeeze_excite),
        InvertedResidual(12, 16, 6, 5, 2, nn.SiLU, squeeze_excite),
        InvertedResidual(16, 16, 6, 5, 1, nn.SiLU, squeeze_excite),
    ]
    return InvertedResidualNet(blocks, (16, 16), nn.SiLU, nn.Sequential(nn.Dropout(0.2), nn.Linear(48, 10)))
