"""What a model's attention and masks are while its step is captured: ops of ours, by transformers' own interfaces."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

NAME = "ipex_captured"  # as transformers knows it


class CannotCapture(Exception):
    """Why the step of a model can't be captured, as one sentence."""


@dataclass
class Step:
    """What the ops of one step share: the words before it, which words count, and the memory of each layer."""

    words: Tensor  # [batch, words] of this step
    past: Tensor
    attended: Tensor
    memory: tuple[Tensor, ...]
    masks: dict[int, Tensor] = field(default_factory=dict)  # by window
    layers: list[int] = field(default_factory=list)  # which attended, in order

    def mask(self, window: int) -> Tensor:
        if window not in self.masks:
            self.masks[window] = torch.ops.ipex.cache_mask(self.words, self.past, self.attended, window)
        return self.masks[window]


_now = threading.local()


class running:
    """While it lasts, attention is that of a step."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def __enter__(self) -> Step:
        _now.step = self._step
        return self._step

    def __exit__(self, *_: Any) -> None:
        del _now.step


# What an attention may be given besides, and how it is then the usual one.
_HARMLESS = {
    "dropout": (0.0, 0, None),
    "is_causal": (True, None),
    "softcap": (None,),
    "s_aux": (None,),
    "position_bias": (None,),
    "head_mask": (None,),
    "layer_head_mask": (None,),
    "output_attentions": (False, None),
}


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    step: Step = _now.step
    for name, values in _HARMLESS.items():
        if name in others and others[name] not in values:
            raise CannotCapture(f"its attention has {name}")
    if attention_mask is not None:
        raise CannotCapture("it makes a mask of its own")
    if not getattr(module, "is_causal", True):
        raise CannotCapture("its attention looks ahead")
    layer = getattr(module, "layer_idx", None)
    if layer is None:
        raise CannotCapture("its attention does not know which layer it is")
    if layer in step.layers:
        raise CannotCapture("several of its layers share keys and values")
    step.layers.append(layer)
    if step.memory[layer].shape[3] != key.shape[3] + value.shape[3] or step.memory[layer].shape[1] != key.shape[1]:
        raise CannotCapture("its cache keeps other numbers than its attention reads")
    window = int(sliding_window or 0)
    result = torch.ops.ipex.attend_cached(
        step.memory[layer], query, key, value, step.past, step.mask(window), scaling, window
    )
    return result.transpose(1, 2), None


def _mask(*_: Any, mask_function: Any = None, use_vmap: bool = False, **__: Any) -> None:
    """The ops make their masks themselves, where they know the model's."""
    if use_vmap:
        raise CannotCapture("it adds a mask of its own to the usual ones")


def register() -> None:
    """Let transformers know both, under a name that no model has until it is captured."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _mask)
