"""Convolutions of images hold their weights channels-last, and hand on their results so.

Kernels compute in that layout. Results of a model may then be channels-last where they were contiguous: the values are
the same.
"""

from __future__ import annotations

import torch
from torch import nn

from .notes import Notes

KNOB = "channels_last"

_is_enabled = True


def enable_auto_channels_last() -> None:
    """Let `ipex.optimize` give the weights of 2-d convolutions channels-last layout. So it starts."""
    global _is_enabled
    _is_enabled = True


def disable_auto_channels_last() -> None:
    """Let `ipex.optimize` leave layouts as they are."""
    global _is_enabled
    _is_enabled = False


def is_auto_channels_last_enabled() -> bool:
    """Whether `ipex.optimize` chooses channels-last layout."""
    return _is_enabled


def to_channels_last(model: nn.Module, notes: Notes) -> None:
    """Lay the weights of 2-d convolutions out channels-last."""
    for name, module in model.named_modules():
        if type(module) not in (nn.Conv2d, nn.ConvTranspose2d):
            continue
        weight = module.weight
        if not weight.is_contiguous(memory_format=torch.channels_last):
            with torch.no_grad():
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)
            notes.applied(KNOB, name, "its weight and its results are channels-last")
