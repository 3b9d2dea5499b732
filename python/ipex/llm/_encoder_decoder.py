"""The step of a model with an encoder, as T5, Bart and Whisper: a graph from the second word of a text on.

The encoder and the first word are the model's own code. It is then that each layer makes keys and values of what the
encoder found; they stay the same for a text, and the graph reads them. Own attention is in the graph as it is, over
memory with room.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput

from ._attention import CannotCapture
from ._cache import RoomyLayer, give_room
from ._call import StepCall, all_attended, given_cache
from ._capture import (
    LONG_STEPS,
    Captured,
    PlainLayer,
    TracedStep,
    arguments_of,
    cache_name,
    cache_of,
    check_same,
    sizes_of,
    traced,
    tried,
)

BEGINS = "a text begins"  # why the model itself is called for its first word
_ATTENDED = 4  # among the inputs of the graph


class _CrossLayer(DynamicLayer):
    """Keys and values of what the encoder found."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.is_initialized = keys, values, True

    def update(self, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        raise CannotCapture("its layers make keys and values of the encoder's at each step")


class _CrossStep(TracedStep):
    """`tensors` are the memory of each layer, then the keys and then the values of what the encoder found."""

    def __init__(self, model: Any, sizes: list[Any]) -> None:
        super().__init__(model)
        self._sizes = sizes
        self._layers: list[PlainLayer] = []
        self._takes_places = "decoder_position_ids" in arguments_of(model)

    def forward(
        self,
        words: Tensor,
        places: Tensor,
        kept: Tensor,
        past: Tensor,
        attended: Tensor,
        states: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        count = len(self._sizes)
        self._layers = [
            PlainLayer(False, memory, of_key, past) for memory, (_, of_key, _) in zip(tensors[:count], self._sizes)
        ]
        cross = [_CrossLayer(*both) for both in zip(tensors[count : 2 * count], tensors[2 * count :])]
        return self._run(
            kept,
            EncoderDecoderCache(cache_of(self._layers), cache_of(cross)),
            decoder_input_ids=words,
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=attended.long(),
            **({"decoder_position_ids": places} if self._takes_places else {}),
        )

    def check(self, model: Any) -> None:
        if any(layer.updates != 1 for layer in self._layers):
            raise CannotCapture("several of its layers share keys and values")


def _arguments(
    words: Tensor, places: Tensor, kept: Tensor, attended: Tensor, states: Tensor, cache: EncoderDecoderCache
) -> tuple[Tensor, ...]:
    """What the graph is called with, once its memory has room for the words."""
    own: list[Any] = cache.self_attention_cache.layers
    cross = cache.cross_attention_cache.layers
    past, memory = torch.tensor(own[0].length), [layer.room(words.shape[1]) for layer in own]
    return (
        *(words, places, kept, past, attended, states, *memory),
        *(layer.keys for layer in cross),
        *(layer.values for layer in cross),
    )


class _Text:
    """A text that is begun: one random word after some that the encoder was given."""

    def __init__(self, model: Any, batch: int, encoded: int, padding: int, words: int) -> None:
        draw = torch.Generator().manual_seed(encoded)
        config = model.config.get_text_config(decoder=True)
        self.words = torch.randint(0, config.vocab_size, (batch, words + 1), generator=draw)
        padding_word = getattr(config, "pad_token_id", None)  # where it stands may change positions of others
        self.words[self.words == padding_word] = config.vocab_size - 1
        numbers = model.get_encoder().config.hidden_size
        self.states = torch.randn(batch, encoded, numbers, generator=draw).to(next(model.parameters()).dtype)
        self.attended = torch.ones(batch, encoded, dtype=torch.bool)
        self.attended[0, encoded - padding :] = False
        self.cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self._begin = self.logits(
            model, self.words[:, :1], use_cache=True, **{cache_name(arguments_of(model)): self.cache}
        )
        layers = len(self.cache.self_attention_cache.layers)
        if not give_room(self.cache.self_attention_cache, [False] * layers):
            raise CannotCapture("its cache is of another kind")

    def logits(self, model: Any, words: Tensor, **more: Any) -> Tensor:
        mask, states = self.attended.long(), BaseModelOutput(last_hidden_state=self.states)
        result: Tensor = model(encoder_outputs=states, attention_mask=mask, decoder_input_ids=words, **more).logits
        return result

    def arguments(self, first: int, count: int) -> tuple[Tensor, ...]:
        """What the graph is called with for so many words."""
        words = self.words[:, first : first + count]
        places = torch.arange(first, first + count).expand(len(words), count)
        return _arguments(words, places, torch.arange(count), self.attended, self.states, self.cache)


def capture(model: Any) -> Captured:
    """Trace the step of a model with an encoder, optimise it and compare it. CannotCapture says why not."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tried(_captured, model)


def _captured(model: Any) -> Captured:
    names = arguments_of(model)
    for name in ("attention_mask", "encoder_outputs", "decoder_input_ids", cache_name(names)):
        if name not in names:
            raise CannotCapture(f"its forward takes no {name}")
    text = _Text(model, 2, encoded=7, padding=0, words=3)
    layers: list[Any] = text.cache.self_attention_cache.layers
    if len(layers) != len(text.cache.cross_attention_cache.layers) or not layers:
        raise CannotCapture("not each of its layers attends to what its encoder found")
    sizes, dtype = sizes_of(layers)
    step = _CrossStep(model, sizes)
    graph = traced(model, step, text.arguments(1, 3))
    captured = Captured(graph, [False] * len(sizes), sizes, dtype, step.output, "it attends to its encoder's too")
    for batch, encoded, padding in ((1, 5, 0), (2, 12, 2)):
        _compare(model, captured, _Text(model, batch, encoded, padding, sum(LONG_STEPS)))
    return captured


def _compare(model: Any, captured: Captured, text: _Text) -> None:
    expected = text.logits(model, text.words, use_cache=False)[:, 1:]
    found = []
    for count in LONG_STEPS:
        layers: list[Any] = text.cache.self_attention_cache.layers
        found.append(captured.graph(*text.arguments(layers[0].length, count)))
        for layer in layers:
            layer.wrote(count)
    check_same(model, torch.cat(found, 1).float(), expected.float(), captured.dtype)


class CrossStepCall(StepCall):
    """Lets the model begin a text, and the graph go on."""

    words_name = "decoder_input_ids"
    places_name = "decoder_position_ids"
    arguments = 0
    used = (*StepCall.used, "encoder_outputs")

    def __init__(self, model: Any, captured: Captured) -> None:
        super().__init__(model, captured)
        # Of audio, a mask is one of the encoder's input, which the decoder may never see.
        *_, attended = list(captured.graph.inlined_graph.inputs())[: _ATTENDED + 2]
        self._reads_mask = bool(attended.uses())

    def _own_cache(self, kwargs: dict[str, Any]) -> tuple[Any, Any, str]:
        cache, encoded, mask = given_cache(kwargs), kwargs.get("encoder_outputs"), kwargs.get("attention_mask")
        if cache is None:
            return None, None, BEGINS
        if not isinstance(cache, EncoderDecoderCache):
            return None, None, f"a cache of {type(cache).__name__}"
        if len(cache.is_updated) != len(self.captured.sliding) or not all(cache.is_updated.values()):
            return None, None, BEGINS
        if not isinstance(encoded, (tuple, ModelOutput)) or not isinstance(encoded[0], Tensor):
            return None, None, "no encoder_outputs"
        if self._reads_mask and mask is not None and mask.shape != encoded[0].shape[:2]:
            return None, None, "a mask of other words than the encoder's"
        cross: Any = cache.cross_attention_cache
        if not all(type(layer) is DynamicLayer for layer in cross.layers):
            return None, None, f"a cache of {type(cross).__name__}"
        return cache, cache.self_attention_cache, ""

    def _step(self, cache: Any, words: Tensor, kwargs: dict[str, Any]) -> dict[str, Any]:
        states = kwargs["encoder_outputs"][0]
        layers: list[RoomyLayer] = cache.self_attention_cache.layers
        places, kept = self._places_and_kept(words, layers[0].length, kwargs)
        mask = kwargs.get("attention_mask") if self._reads_mask else None
        attended = all_attended(mask, len(states), states.shape[1])
        logits = self.captured.graph(*_arguments(words, places, kept, attended, states, cache))
        for layer in layers:
            layer.wrote(words.shape[1])
        return {"logits": logits, "encoder_last_hidden_state": states}
