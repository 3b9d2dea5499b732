"""What a model of the zoo is, and how it gets weights with which every layer matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Model:
    """A name, how to build it, and inputs: the first are for tracing, the others have other shapes."""

    name: str
    build: Callable[[], nn.Module]
    inputs: tuple[Callable[[], Inputs], ...]
    scripts: bool = True
    needs: str | None = None  # a package that builds it

    def make(self) -> tuple[nn.Module, list[Inputs]]:
        """Build the model in eval mode, and its inputs; the same ones each time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return enliven(self.build()).eval(), [make() for make in self.inputs]


def floats(*shape: int) -> Tensor:
    """Make noise: a sound, a latent vector."""
    return torch.randn(shape)


def image(*shape: int) -> Tensor:
    """Make something with light and dark parts, which pooling does not even out as it does with noise."""
    coarse = nn.functional.interpolate(2 * torch.randn(*shape[:2], 3, 3), shape[2:], mode="bilinear")
    return coarse + 0.5 * torch.randn(shape)


def integers(*shape: int) -> Tensor:
    """Make the numbers of words; 0, 1 and 2 stand for padding, start and end."""
    return torch.randint(3, 100, shape)


def enliven(model: nn.Module) -> nn.Module:
    """Draw weights that keep the size of activations from layer to layer, and norms as a trained model has them.

    With the weights that layers are born with, attention is nearly uniform, batch_norm does nothing, and the signal of
    a deep model fades: a layer that is computed wrongly would not be seen in the result.
    """
    for module in model.modules():
        own = dict(module.named_parameters(recurse=False)) | dict(module.named_buffers(recurse=False))
        is_norm = "norm" in type(module).__name__.lower()
        for name, value in own.items():
            if name == "running_var":
                nn.init.uniform_(value, 0.5, 1.5)
            elif name == "running_mean" or name.startswith("bias"):
                nn.init.uniform_(value, -0.2, 0.2)
            elif is_norm and name == "weight":
                nn.init.uniform_(value, 0.8, 1.6)
            elif name.startswith("weight") and value.dim() > 1:
                nn.init.normal_(
                    value,
                    std=1.0
                    if isinstance(module, (nn.Embedding, nn.EmbeddingBag))
                    else (1.5 / _fan_in(module, value)) ** 0.5,
                )
    return model


def _fan_in(module: nn.Module, weight: Tensor) -> int:
    if isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
        stride = torch.tensor(module.stride).prod().item()
        return max(1, int(weight[:, 0].numel() // module.groups // stride))
    return weight[0].numel()
