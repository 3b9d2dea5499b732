"""Lets torchvision be imported beside a torch for CPUs.

The compiled part of torchvision's wheel wants CUDA's libraries. Without them it does not load, and the import fails:
torchvision describes its op `nms` to torch, which does not know it. Two declarations are enough. Nothing implements
them: models that call these ops, the detection models, are left out.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

DECLARED: list[torch.library.Library] = []  # an op lives as long as its library


def import_with_torchvision(name: str) -> ModuleType:
    """Import torchvision, or a package that needs it."""
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
    library = torch.library.Library("torchvision", "FRAGMENT")
    DECLARED.append(library)
    for op in ("nms", "qnms"):
        library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module(name)
