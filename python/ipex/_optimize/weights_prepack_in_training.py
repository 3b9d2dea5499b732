"""weights_prepack in training: layers whose forward and backward are faster with the kernels' layout of the weight.

Few are: the optimizer writes plain weights, so each step packs them anew. benchmarks/prepacked_training.py measures it.
"""

from __future__ import annotations

from torch import nn

from .notes import Notes
from .packed.families import known_class_of
from .packed.trained import TrainedConv2d, why_not
from .weights_prepack import KNOB


def prepack_for_training(model: nn.Module, notes: Notes) -> None:
    """Let each layer for which it pays compute so, and say why others don't."""
    for name, module in model.named_modules():
        if type(module) is TrainedConv2d or known_class_of(type(module)) is None:
            continue
        reason = why_not(module)
        if reason is None:
            module.__class__ = TrainedConv2d
            notes.applied(
                KNOB, name or "the model", "forward and backward by Winograd's way, where images are large enough"
            )
        else:
            notes.declined(KNOB, name or "the model", reason)


def end_training(model: nn.Module) -> None:
    """Make these layers what they were."""
    for module in model.modules():
        if type(module) is TrainedConv2d:
            module.__class__ = nn.Conv2d  # type: ignore[assignment]
