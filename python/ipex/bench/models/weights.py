"""Random weights with which the signal keeps its size from layer to layer.

With the weights that layers are born with, a deep model's signal fades: differences between backends would not be seen
in the result, and denormal numbers would slow some of them down.
"""

from __future__ import annotations

from torch import nn

NORMS = (nn.BatchNorm2d, nn.LayerNorm)


def enliven(model: nn.Module) -> nn.Module:
    """Draw all weights anew; norms get statistics like those of a trained model."""
    for module in model.modules():
        for name, value in module.named_buffers(recurse=False):
            if name == "running_mean":
                nn.init.uniform_(value, -0.2, 0.2)
            elif name == "running_var":
                nn.init.uniform_(value, 0.5, 1.5)
        for name, value in module.named_parameters(recurse=False):
            if name.startswith("bias"):
                nn.init.uniform_(value, -0.2, 0.2)
            elif isinstance(module, NORMS):
                nn.init.uniform_(value, 0.8, 1.2)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(value, std=0.5)
            elif value.dim() > 1:
                nn.init.normal_(value, std=(1.5 / _fan_in(module, value.shape)) ** 0.5)
    return model


def _fan_in(module: nn.Module, shape: tuple[int, ...]) -> int:
    if isinstance(module, nn.ConvTranspose2d):  # its kernels do not overlap here
        return shape[0]
    if getattr(module, "weight_is_transposed", False):
        return shape[0]
    fan_in = 1
    for size in shape[1:]:
        fan_in *= size
    return fan_in
