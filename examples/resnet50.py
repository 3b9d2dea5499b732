"""ResNet-50, with random weights: the model of the demo and of many tests."""

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a residual."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        width_out = 4 * width
        self.conv1 = nn.Conv2d(width_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width_out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(width_in, width_out, 1, stride, bias=False), nn.BatchNorm2d(width_out))
            if stride != 1 or width_in != width_out
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.shortcut(x)
        return self.relu(y)  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """A stem, four stages of bottlenecks, a classifier."""

    def __init__(self, blocks: tuple[int, ...], base_width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, base_width, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(base_width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, padding=1),
        )
        stages: list[nn.Module] = []
        width_in = base_width
        for stage, count in enumerate(blocks):
            width = base_width * 2**stage
            for block in range(count):
                stages.append(Bottleneck(width_in, width, 2 if stage > 0 and block == 0 else 1))
                width_in = 4 * width
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(width_in, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Classify a batch of images."""
        x = self.pool(self.stages(self.stem(x)))
        return self.classifier(torch.flatten(x, 1))  # type: ignore[no-any-return]


def with_lively_batch_norms(model: nn.Module) -> nn.Module:
    """Give every batch_norm statistics as a trained model has them: fresh ones change almost nothing."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.2, 0.6)
            nn.init.uniform_(module.bias, -0.2, 0.2)
            nn.init.uniform_(module.running_mean, -0.2, 0.2)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 1.5)  # type: ignore[arg-type]
    return model


def resnet50() -> nn.Module:
    """ResNet-50 in eval mode; 25.6 million parameters."""
    return with_lively_batch_norms(ResNet((3, 4, 6, 3), base_width=64, classes=1000)).eval()


def tiny_resnet() -> nn.Module:
    """The same architecture, small enough for a test."""
    return with_lively_batch_norms(ResNet((1, 2), base_width=8, classes=10)).eval()
