"""An MLP as recommendation uses them, a tiny one, and an LSTM."""

from __future__ import annotations

from torch import Tensor, nn


def mlp(*widths: int) -> nn.Module:
    """Linear layers with relu between them."""
    layers: list[nn.Module] = []
    for width_in, width in zip(widths, widths[1:]):
        layers += [nn.Linear(width_in, width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def wide_mlp() -> nn.Module:
    """42 million parameters: at batch 1 it waits for memory."""
    return mlp(1024, 4096, 4096, 4096, 1024)


def tiny_mlp() -> nn.Module:
    """So little work that the cost of each call shows."""
    return mlp(64, 256, 256, 64)


class LSTM(nn.Module):
    """Two layers and a label for each step."""

    def __init__(self, width_in: int, width: int, labels: int) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(width_in, width, num_layers=2, batch_first=True)
        self.label = nn.Linear(width, labels)

    def forward(self, x: Tensor) -> Tensor:
        """Label each step."""
        return self.label(self.recurrent(x)[0])  # type: ignore[no-any-return]


def lstm() -> nn.Module:
    """3.7 million parameters."""
    return LSTM(256, 512, 64)
