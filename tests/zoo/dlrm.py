"""DLRM: dense features through an MLP, sparse ones through embedding bags, their dot products through another MLP."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CATEGORIES = (50, 30, 80)
DENSE = 13


def clicks(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Dense features, and two items of each category for each click: their numbers and where each bag begins."""
    items = torch.stack([torch.randint(0, size, (2 * batch,)) for size in CATEGORIES])
    return torch.rand(batch, DENSE), items, torch.arange(0, 2 * batch, 2).repeat(len(CATEGORIES), 1)


def mlp(*widths: int) -> list[nn.Module]:
    """Linear layers, each with relu."""
    layers: list[nn.Module] = []
    for width_in, width in zip(widths, widths[1:]):
        layers += [nn.Linear(width_in, width), nn.ReLU()]
    return layers


class DLRM(nn.Module):
    """Interaction is a product of each pair of features, the triangle below the diagonal."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.bottom = nn.Sequential(*mlp(DENSE, 32, width))
        self.tables = nn.ModuleList(nn.EmbeddingBag(size, width, mode="sum") for size in CATEGORIES)
        count = len(CATEGORIES) + 1
        self.register_buffer("pairs", torch.tril_indices(count, count, offset=-1))
        self.top = nn.Sequential(*mlp(width + count * (count - 1) // 2, 32, 16), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, dense: Tensor, items: Tensor, offsets: Tensor) -> Tensor:
        x = self.bottom(dense)
        features = [x]
        for i, table in enumerate(self.tables):
            features.append(table(items[i], offsets[i]))
        stacked = torch.stack(features, dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1))
