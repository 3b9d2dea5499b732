"""Whole trainings against stock: the loss curve of float32, within a stated band."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ipex.optim import Lamb
from optimizer_cases import prepared

ROOT = Path(__file__).parents[2]
Batches = list[tuple[Tensor, Tensor]]

# float32: steps differ from stock's by rounding, which training magnifies slowly.
FLOAT32_BAND = 0.01
# bfloat16 rounds inputs, activations and gradients to 8 bits: a loss is a mean over many of these, and moves by a few
# percent. Stock's own autocast is held against the same band below.
BFLOAT16_BAND = 0.05


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        Block(16),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        Block(32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


class Transformer(nn.Module):
    """A language model of bytes."""

    def __init__(self, width: int = 64, length: int = 32) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        mask = torch.full((length, length), -torch.inf).triu(1)
        return self.head(self.layers(self.words(x) + self.places(torch.arange(length)), mask)).flatten(0, 1)


def digits() -> Batches:
    """1797 images of hand-written digits, in batches, 3 times."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn, which has the digits, is not installed")
    found = datasets.load_digits()
    images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(found.target)

    def epochs() -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(3):
            for chosen in torch.randperm(len(images))[:1792].split(64):
                yield images[chosen], labels[chosen]

    return list(epochs())


def text() -> Batches:
    """Pieces of this project's own prose."""
    prose = "".join((ROOT / name).read_text() for name in ("README.md", "runtime/README.md", "passes/README.md"))
    data = torch.tensor(list(prose.encode()))

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(80):
            starts = torch.randint(len(data) - 33, (16,))
            rows = torch.stack([data[start : start + 33] for start in starts])
            yield rows[:, :-1], rows[:, 1:].flatten()

    return list(batches())


def curve(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches, autocast: bool) -> Tensor:
    """Train, and return the loss of each step, smoothed over 16."""
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            outputs = model(inputs)
        loss = F.cross_entropy(outputs.float(), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).unfold(0, 16, 16).mean(1)


TASKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batches], Callable[..., torch.optim.Optimizer]]] = {
    "resnet_sgd": (resnet, digits, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4)),
    "resnet_lamb": (resnet, digits, lambda p: Lamb(p, lr=0.01)),
    "transformer_adamw": (Transformer, text, lambda p: torch.optim.AdamW(p, lr=2e-3)),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_loss_curve_is_that_of_stock(name):
    make_model, make_batches, make_optimizer = TASKS[name]
    batches, model = make_batches(), make_model()
    first, second, third = (copy.deepcopy(model) for _ in range(3))
    stock = curve(model, make_optimizer(model.parameters()), batches, autocast=False)
    fused = curve(first, prepared(make_optimizer, first), batches, autocast=False)
    split = curve(second, prepared(make_optimizer, second, torch.bfloat16), batches, autocast=True)
    stock_autocast = curve(third, make_optimizer(third.parameters()), batches, autocast=True)
    assert stock[-1] < 0.75 * stock[0]

    def distance(other: Tensor) -> float:
        return float(((other - stock).abs() / stock[0]).max())

    print(f"{name}: fused {distance(fused):.2e}, split {distance(split):.2e}, autocast {distance(stock_autocast):.2e}")
    assert distance(fused) < FLOAT32_BAND
    assert distance(stock_autocast) < BFLOAT16_BAND
    assert distance(split) < BFLOAT16_BAND
