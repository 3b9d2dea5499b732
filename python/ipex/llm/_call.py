"""What a call of an optimised model runs: the captured step where it stands for the call, and else the model."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from .._torch_internals import is_tracing
from ..quantization import Prepared
from . import _heap
from ._cache import RoomyLayer, give_room
from ._capture import Captured, cache_name

_NOTHING = torch.empty(0, dtype=torch.bool)
# Arguments that change nothing at these values; all others at None.
_UNUSED = {
    "output_attentions": (None, False),
    "output_hidden_states": (None, False),
    "return_dict": (None, True),
    "use_cache": (None, True, False),
    "cache_position": None,  # any: it says what the cache says
}

_KEEP = (
    "The model's own code needs its weights, which ipex.llm.optimize released once they were packed. Pass "
    "deployment_mode=False to keep them for such calls, state_dict and copies."
)
_RELEASED = f"ipex.llm: expected the weights of the model, got none. {_KEEP}"
_TRAINING = "the model is in training mode"
_GRADIENTS = "gradients are enabled"
_DO_INSTEAD = {_TRAINING: "Call eval() on it.", _GRADIENTS: "Call it under torch.no_grad()."}


def without_memory(tensor: Tensor) -> Tensor:
    """Return zeros of the same dtype and sizes, of one number."""
    return torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)


class _Refusal:
    """A hook that raises where the weights would be read, and where a copy or a file of the model would be made."""

    def __call__(self, *_: Any) -> Any:
        raise RuntimeError(_RELEASED)

    __reduce_ex__ = __call__


_refuse = _Refusal()


def given_cache(kwargs: dict[str, Any]) -> Any:
    """Return the cache of a call, by either of its names."""
    return kwargs.get("past_key_values", kwargs.get("cache"))


class StepCall:
    """nn.Module.__call__ asks it first."""

    words_name = "input_ids"
    places_name = "position_ids"
    arguments = 1  # that may have no name: the words
    used: tuple[str, ...] = ("attention_mask", "past_key_values", "cache", "logits_to_keep")

    def __init__(self, model: Any, captured: Captured) -> None:
        self.prepared: Callable[..., Prepared] | None = None  # for ipex.quantization.prepare, where the step observes
        self._model = weakref.ref(model)
        self.has_weights = True
        self.captured = captured
        self._cache_name = cache_name([field.name for field in dataclasses.fields(captured.output)])
        self.reasons: set[str] = set()  # why calls ran as before

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model = self._model()
        assert model is not None
        cache, reason = self._cache(model, args, kwargs)
        if cache is None:
            if not self.has_weights:
                raise RuntimeError(
                    f"ipex.llm: expected a call that the captured step computes, got another: {reason}. "
                    f"{_DO_INSTEAD.get(reason, _KEEP)}"
                )
            self.reasons.add(reason)
            return model._call_impl(*args, **kwargs)
        words = args[0] if args else kwargs[self.words_name]
        found = self._step(cache, words, kwargs)
        keeps = kwargs.get("use_cache") is not False
        return self.captured.output(**found, **{self._cache_name: cache if keeps else None})

    def new_layers(self) -> list[RoomyLayer]:
        """Return layers for a cache of one text, with no word yet."""
        layers = [RoomyLayer(sliding, self.captured.codes) for sliding in self.captured.sliding]
        for layer, sizes in zip(layers, self.captured.sizes):
            layer.allocate(1, sizes, self.captured.dtype)
        return layers

    def check_weights(self) -> None:
        """Raise where the weights were released."""
        if not self.has_weights:
            _refuse()

    def let_weights_go(self) -> None:
        """Free what the graph holds packed. Whoever needs the weights themselves is told."""
        model = self._model()
        assert model is not None
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = without_memory(tensor)
        _heap.trim()
        for part in model.children():
            part.register_forward_pre_hook(_refuse)
        model.register_state_dict_pre_hook(_refuse)
        self.has_weights = False

    def _cache(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, str]:
        """The cache of the call, or why it is none for the step."""
        if model.training:
            return None, _TRAINING
        if torch.is_grad_enabled():
            return None, _GRADIENTS
        if len(args) > self.arguments or (args and self.words_name in kwargs):
            return None, "arguments without names"
        for name, value in kwargs.items():
            if name in (self.words_name, self.places_name, *self.used):
                continue
            harmless = _UNUSED.get(name, (None,))
            if harmless is not None and not any(value is one for one in harmless):
                return None, f"it has {name}"
        words = args[0] if args else kwargs.get(self.words_name)
        if not isinstance(words, Tensor) or words.dim() != 2 or words.shape[1] == 0:
            return None, f"no {self.words_name} of [batch, words]"
        mask = kwargs.get("attention_mask")
        if mask is not None and (not isinstance(mask, Tensor) or mask.dim() != 2):
            return None, "a mask that is not of [batch, words]"
        places = kwargs.get(self.places_name)
        if places is not None and (not isinstance(places, Tensor) or places.dim() != 2):
            return None, f"{self.places_name} that are not of [batch, words]"
        if model._forward_hooks or model._forward_pre_hooks or is_tracing():
            return None, "hooks, or a trace"
        cache, own, reason = self._own_cache(kwargs)
        if reason:
            return None, reason
        if not give_room(own, self.captured.sliding, self.captured.codes):
            return None, f"a cache of {type(own).__name__}"
        first: RoomyLayer = own.layers[0]
        if first.is_initialized and first.batch not in (None, words.shape[0]):
            return None, "a cache of another batch"
        return cache, ""

    def _own_cache(self, kwargs: dict[str, Any]) -> tuple[Any, Any, str]:
        """The cache of the call, and in it that of the words; or why it is none for the step."""
        cache = given_cache(kwargs)
        if cache is None:
            cache = DynamicCache()
        return cache, cache, ""

    def _step(self, cache: Any, words: Tensor, kwargs: dict[str, Any]) -> dict[str, Any]:
        layers: list[RoomyLayer] = cache.layers
        batch, count = words.shape
        past = layers[0].length
        memory: list[Tensor] = []
        for layer, sizes in zip(layers, self.captured.sizes):
            if not layer.is_initialized:
                layer.allocate(batch, sizes, self.captured.dtype)
            memory.append(layer.room(count))
        attended = kwargs.get("attention_mask")
        if self.captured.reads_attended:
            attended = all_attended(attended, batch, past + count)
        else:
            attended = _attended(attended, past + count)
        places, kept = self._places_and_kept(words, past, kwargs)
        logits = self.captured.graph(words, places, kept, torch.tensor(past), attended, *memory)
        for layer in layers:
            layer.wrote(count)
        return {"logits": logits}

    def _places_and_kept(self, words: Tensor, past: int, kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Where the words stand, and of which the logits are wanted."""
        count = words.shape[1]
        places, kept = kwargs.get(self.places_name), kwargs.get("logits_to_keep", 0)
        mask = kwargs.get("attention_mask")
        if places is None and self.captured.counts_attended and mask is not None:
            places = (mask.long().cumsum(1) - 1).clamp(min=0)[:, -count:]
        elif places is None:
            places = torch.arange(past, past + count)
        if not isinstance(kept, Tensor):
            kept = torch.arange(count - kept if 0 < kept < count else 0, count)
        return places.expand(words.shape).contiguous(), kept


def _attended(mask: Tensor | None, words: int) -> Tensor:
    if mask is None or bool(mask.all()):
        return _NOTHING
    return mask[:, -words:].bool()


def all_attended(mask: Tensor | None, batch: int, words: int) -> Tensor:
    """Return which of so many words count, of each text."""
    if mask is None:
        return torch.ones(batch, words, dtype=torch.bool)
    if mask.shape[0] not in (1, batch) or mask.shape[1] < words:
        raise RuntimeError(f"ipex.llm: expected attended of [batch, {words}], got {list(mask.shape)}.")
    return mask[:, -words:].bool().expand(batch, words)
