"""Small models that `ipex.optimize` is tried on, with inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Case(NamedTuple):
    """How to make a model in eval mode, and inputs for it."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]


def trained(model: nn.Module) -> nn.Module:
    """A model whose batch_norms have statistics and scales."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            if module.affine:
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias)
    return model.eval()


class Residual(nn.Module):
    """Two convolutions with batch_norm, and what goes around them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.dropout(self.bn2(self.conv2(y))) + x)


class Classifier(nn.Module):
    """A stem, a residual block, a pool and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.block = Residual()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(self.pool(self.block(self.stem(x))), 1))


class Mlp(nn.Module):
    """Linears with batch_norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32, bias=False)
        self.norm = nn.BatchNorm1d(32)
        self.drop = nn.Dropout()
        self.second = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.drop(F.relu(self.norm(self.first(x)))))


class Attention(nn.Module):
    """Query, key and value from one input."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.out = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (m(x).view(batch, length, 2, 8).transpose(1, 2) for m in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, 16)
        return self.norm(x + self.out(y))


class Tagger(nn.Module):
    """Embeddings, an LSTM and a linear."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 12)
        self.lstm = nn.LSTM(12, 10, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
        self.head = nn.Linear(20, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(x))[0])


class Decoder(nn.Module):
    """Transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1, groups=2, bias=False)
        self.bn = nn.BatchNorm2d(6)
        self.out = nn.ConvTranspose2d(6, 3, 3, stride=2, output_padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.out(F.relu(self.bn(self.up(x)))))


def _audio() -> nn.Module:
    return nn.Sequential(nn.Conv1d(4, 8, 5, padding="same", dilation=2), nn.BatchNorm1d(8), nn.ConvTranspose1d(8, 4, 4))


def _video() -> nn.Module:
    return nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.ConvTranspose3d(4, 2, 2))


CASES = {
    "classifier": Case(Classifier, lambda: (torch.randn(2, 3, 16, 16),)),
    "mlp": Case(Mlp, lambda: (torch.randn(3, 16),)),
    "attention": Case(Attention, lambda: (torch.randn(2, 5, 16),)),
    "tagger": Case(Tagger, lambda: (torch.randint(0, 20, (2, 7)),)),
    "decoder": Case(Decoder, lambda: (torch.randn(2, 8, 6, 6),)),
    "audio": Case(_audio, lambda: (torch.randn(2, 4, 20),)),
    "video": Case(_video, lambda: (torch.randn(1, 2, 4, 6, 6),)),
    "gru": Case(lambda: nn.GRU(6, 9, num_layers=2), lambda: (torch.randn(4, 2, 6),)),
}


def model_of(name: str) -> nn.Module:
    return trained(CASES[name].make())


def inputs_of(name: str) -> tuple[Any, ...]:
    return CASES[name].inputs()
