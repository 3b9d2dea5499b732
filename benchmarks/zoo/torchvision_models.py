"""Every architecture of torchvision; left out are models whose weights are quantised, and detection models.

Detection models call `nms` and `roi_align`, which torchvision's wheel brings for CUDA builds of torch only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .torchvision_import import import_with_torchvision

models: Any = import_with_torchvision("torchvision.models")

LEFT_OUT = {
    **dict.fromkeys(models.list_models(module=models.detection), "calls ops of torchvision's compiled part"),
    **dict.fromkeys(models.list_models(module=models.quantization), "is quantised"),
}
FLOW = models.list_models(module=models.optical_flow)
VIDEOS = models.list_models(module=models.video)
IMAGE = 256  # where the model takes any size
FRAMES = 16


def names() -> list[str]:
    """Return the names of the architectures."""
    return list(models.list_models())


def build(name: str) -> nn.Module:
    """Build one; nothing is downloaded."""
    more = {"weights_backbone": None} if name in models.list_models(module=models.segmentation) else {}
    model: nn.Module = models.get_model(name, weights=None, **more)
    model.name = name
    return model


def inputs(model: nn.Module) -> tuple[Tensor, ...]:
    """Make an image, a video, or two images."""
    name = model.name
    if name in FLOW:
        return torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)
    size = models.get_model_weights(name).DEFAULT.transforms.keywords.get("crop_size", IMAGE)
    if name in VIDEOS:
        return (torch.randn(1, 3, FRAMES, *size),)
    return (torch.randn(1, 3, size, size),)
