"""DenseNet: batch_norm and relu come before each convolution, and every layer reads all earlier ones.

The blocks are those of the benchmark; the network is smaller.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ipex.bench.models.convolutional import DenseBlock


def transition(width_in: int, width: int) -> list[nn.Module]:
    """Half the channels, half the resolution."""
    return [
        nn.BatchNorm2d(width_in),
        nn.ReLU(inplace=True),
        nn.Conv2d(width_in, width, 1, bias=False),
        nn.AvgPool2d(2, 2),
    ]


class DenseNet(nn.Module):
    """A stem, two dense blocks with a transition between them, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, padding=1),
            DenseBlock(3, 16, 8),
            *transition(40, 20),
            DenseBlock(3, 20, 8),
            nn.BatchNorm2d(44),
        )
        self.classifier = nn.Linear(44, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.features(x), inplace=True)
        y = F.adaptive_avg_pool2d(y, (1, 1))
        return self.classifier(torch.flatten(y, 1))
