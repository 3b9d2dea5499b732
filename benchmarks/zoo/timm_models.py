"""Every architecture of timm, with images of the size that it was made for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .torchvision_import import import_with_torchvision

timm = import_with_torchvision("timm")
LEFT_OUT: dict[str, str] = {}


def names() -> list[str]:
    """Return the names of the architectures."""
    return list(timm.list_models())


def build(name: str) -> nn.Module:
    """Build one; nothing is downloaded."""
    model: nn.Module = timm.create_model(name, pretrained=False)
    return model


def inputs(model: nn.Module) -> tuple[Tensor, ...]:
    """Make an image."""
    return (torch.randn(1, *model.default_cfg["input_size"]),)
