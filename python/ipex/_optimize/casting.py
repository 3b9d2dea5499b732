"""Layers whose weights were cast and that are not packed: without autocast, they cast what they are given.

Their class becomes a subclass of the one that they had, as that of packed layers does (`packed/layer.py`). They give
the dtype that packed ones give: that of the input, of an embedding float32, and autocast's under autocast.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .._torch_internals import tree_map
from .packed.layer import PackedLayer, subclass


class CastingLayer(nn.Module):
    """Stands before the module's own class among the bases of the class it gets."""

    plain_class: ClassVar[type[nn.Module]]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _unpickled, (type(self).plain_class,), self.__getstate__()  # type: ignore[no-untyped-call]

    def __prepare_scriptable__(self) -> nn.Module:
        """torch.jit.script compiles the module that this one was."""
        plain = self.plain_class.__new__(self.plain_class)
        plain.__dict__.update(self.__dict__)
        return plain


class CastingEmbedding(CastingLayer):
    """An nn.Embedding."""

    def forward(self, input: Tensor) -> Any:
        result = super().forward(input)
        return result if torch.is_autocast_enabled(input.device.type) else result.float()


class CastingInput(CastingLayer):
    """Anything else. Its first argument decides about the dtype of the results."""

    def forward(self, input: Any, *args: Any, **kwargs: Any) -> Any:
        own = {p.dtype for p in self._parameters.values() if p is not None}
        given = input.data.dtype if isinstance(input, nn.utils.rnn.PackedSequence) else input.dtype
        low = next(iter(own - {torch.float32}), None)
        if low is None or own == {given} or torch.is_autocast_enabled(input.device.type):
            return super().forward(input, *args, **kwargs)
        with torch.autocast(input.device.type, low, cache_enabled=False):
            result = super().forward(input, *args, **kwargs)
        return tree_map(lambda value: value.to(given) if value.is_floating_point() else value, result)


def let_layers_cast(layers: list[nn.Module]) -> None:
    """Let these layers cast what they are given, unless they are packed, or do so already."""
    for layer in layers:
        if not isinstance(layer, (PackedLayer, CastingLayer)):
            layer.__class__ = _casting_class(type(layer))


def _casting_class(plain_class: Any) -> Any:
    return subclass("Casting", CastingEmbedding if plain_class is nn.Embedding else CastingInput, plain_class)


def _unpickled(plain_class: Any) -> Any:
    casting = _casting_class(plain_class)
    return casting.__new__(casting)
