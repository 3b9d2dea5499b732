"""What a call of an optimised model runs: the captured step where it stands for the call, and else the model."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from ._cache import RoomyLayer, give_room
from ._capture import Captured

_NOTHING = torch.empty(0, dtype=torch.bool)
# Arguments that change nothing at these values; all others at None.
_UNUSED = {
    "output_attentions": (None, False),
    "output_hidden_states": (None, False),
    "return_dict": (None, True),
    "use_cache": (None, True, False),
    "cache_position": None,  # any: it says what the cache says
}
_USED = ("input_ids", "attention_mask", "position_ids", "past_key_values", "cache", "logits_to_keep")


_LET_GO = (
    "ipex.llm: expected the weights of the model, which ipex.llm.optimize let go of once they were packed. Pass "
    "deployment_mode=False to keep them for calls that need the model's own code, state_dict and copies."
)


def _trim() -> None:
    """Give memory that the allocator of C keeps back to the system, where it is glibc's."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _refuse(*_: Any) -> None:
    raise RuntimeError(_LET_GO)


class StepCall:
    """nn.Module.__call__ asks it first."""

    def __init__(self, model: Any, captured: Captured) -> None:
        self._model = weakref.ref(model)
        self._has_weights = True
        self._captured = captured
        self.reasons: set[str] = set()  # why calls ran as before

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model = self._model()
        assert model is not None
        cache, reason = self._cache(model, args, kwargs)
        if cache is None:
            if not self._has_weights:
                raise RuntimeError(f"{_LET_GO} The call is none for the graph: {reason}.")
            self.reasons.add(reason)
            return model._call_impl(*args, **kwargs)
        words = args[0] if args else kwargs["input_ids"]
        logits = self._step(cache, words, kwargs)
        keeps = kwargs.get("use_cache") is not False
        return self._captured.output(logits=logits, past_key_values=cache if keeps else None)

    def let_weights_go(self) -> None:
        """Free what the graph holds packed. Whoever needs the weights themselves is told."""
        model = self._model()
        assert model is not None
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
        _trim()
        for part in model.children():
            part.register_forward_pre_hook(_refuse)
        model.register_state_dict_pre_hook(_refuse)
        self._has_weights = False

    def _cache(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[DynamicCache | None, str]:
        """The cache of the call, or why it is none for the step."""
        if model.training or torch.is_grad_enabled():
            return None, "gradients are wanted"
        if len(args) > 1 or (args and "input_ids" in kwargs):
            return None, "arguments without names"
        for name, value in kwargs.items():
            if name in _USED:
                continue
            harmless = _UNUSED.get(name, (None,))
            if harmless is not None and not any(value is one for one in harmless):
                return None, f"it has {name}"
        words = args[0] if args else kwargs.get("input_ids")
        if not isinstance(words, Tensor) or words.dim() != 2 or words.shape[1] == 0:
            return None, "no input_ids of [batch, words]"
        mask = kwargs.get("attention_mask")
        if mask is not None and (not isinstance(mask, Tensor) or mask.dim() != 2):
            return None, "a mask that is not of [batch, words]"
        places = kwargs.get("position_ids")
        if places is not None and (not isinstance(places, Tensor) or places.dim() != 2):
            return None, "position_ids that are not of [batch, words]"
        if model._forward_hooks or model._forward_pre_hooks or torch._C._get_tracing_state() is not None:
            return None, "hooks, or a trace"
        cache = kwargs.get("past_key_values", kwargs.get("cache"))
        if cache is None:
            cache = DynamicCache()
        if not give_room(cache, self._captured.sliding):
            return None, f"a cache of {type(cache).__name__}"
        first: RoomyLayer = cache.layers[0]
        if first.is_initialized and first.keys is not None and first.keys.shape[0] != words.shape[0]:
            return None, "a cache of another batch"
        return cache, ""

    def _step(self, cache: DynamicCache, words: Tensor, kwargs: dict[str, Any]) -> Tensor:
        layers: list[RoomyLayer] = cache.layers
        batch, count = words.shape
        past = layers[0].length
        memory: list[Tensor] = []
        for layer, sizes in zip(layers, self._captured.sizes):
            if not layer.is_initialized:
                layer.allocate(batch, sizes, self._captured.dtype)
            memory.append(layer.room(count))
        attended, places = _attended(kwargs.get("attention_mask"), past + count), kwargs.get("position_ids")
        if places is None:
            places = torch.arange(past, past + count)
        kept = kwargs.get("logits_to_keep", 0)
        if not isinstance(kept, Tensor):
            kept = torch.arange(count - kept if 0 < kept < count else 0, count)
        places = places.expand(batch, count)
        logits: Tensor = self._captured.graph(words, places, kept, torch.tensor(past), attended, *memory)
        for layer in layers:
            layer.wrote(count)
        return logits


def _attended(mask: Tensor | None, words: int) -> Tensor:
    if mask is None or bool(mask.all()):
        return _NOTHING
    return mask[:, -words:].bool()
