"""VGG, with and without batch_norm: convolutions with bias, a classifier of three layers with dropout."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class VGG(nn.Module):
    """Three stages of 3x3 convolutions."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width_in = 3
        for width, count in ((8, 1), (16, 1), (24, 2)):
            for _ in range(count):
                layers.append(nn.Conv2d(width_in, width, 3, padding=1))
                layers += [nn.BatchNorm2d(width)] if norm else []
                layers.append(nn.ReLU(inplace=True))
                width_in = width
            layers.append(nn.MaxPool2d(2, 2))
        self.features, self.pool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d((3, 3))
        self.classifier = nn.Sequential(
            nn.Linear(24 * 9, 64),
            nn.ReLU(True),
            nn.Dropout(),
            nn.Linear(64, 64),
            nn.ReLU(True),
            nn.Dropout(),
            nn.Linear(64, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.pool(self.features(x)), 1))
