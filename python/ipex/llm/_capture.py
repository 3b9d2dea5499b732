"""Traces the step of a language model: some words in, the logits of the next out, once for all lengths and batches."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from .._load_extension import _C
from .._script_module import cpp_module, wrapped
from ._attention import NAME, CannotCapture, Step, register, running
from ._cache import RoomyLayer

# Rotary embeddings whose frequencies do not depend on the length of the text.
_STEADY_ROTARY = ("default", "linear", "llama3", "yarn", "proportional")
_USUAL_LAYERS = ("full_attention", "sliding_attention")
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}  # of the largest logit


@dataclass
class Captured:
    """The optimised graph of a step, and what its memory looks like."""

    graph: torch.jit.ScriptModule
    sliding: list[bool]
    sizes: list[tuple[int, int, int]]  # of each layer: heads, numbers of a key, numbers of a value
    dtype: torch.dtype
    output: type


class _TracedLayer(RoomyLayer):
    """Hands keys and values on: the attention behind it keeps them."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return key_states, value_states


class _Step(nn.Module):
    """What is traced. `memory` is that of each layer."""

    def __init__(self, model: nn.Module, sliding: list[bool]) -> None:
        super().__init__()
        self.model = model
        self.sliding = sliding
        # Of the last call, for whoever traces it.
        self.step: Step | None = None
        self.output: type = tuple

    def forward(
        self, words: Tensor, places: Tensor, kept: Tensor, past: Tensor, attended: Tensor, *memory: Tensor
    ) -> Tensor:
        cache = DynamicCache()
        cache.layers = [_TracedLayer(sliding) for sliding in self.sliding]
        self.step = Step(words, past, attended, memory)
        with running(self.step):
            result = self.model(
                input_ids=words,
                position_ids=places,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=kept,
            )
        self.output = type(result)
        logits: Tensor = result.logits
        return logits


def layers_of(model: Any) -> list[bool]:
    """Return for each layer whether it slides. CannotCapture for what can be told before the model is run."""
    if "logits_to_keep" not in getattr(type(model).forward, "__wrapped__", type(model).forward).__code__.co_varnames:
        raise CannotCapture("its forward takes no logits_to_keep")
    config = model.config.get_text_config(decoder=True)
    if getattr(config, "is_encoder_decoder", False):
        raise CannotCapture("it has an encoder")
    _check_rotary(config)
    count = getattr(config, "num_hidden_layers", None)
    if not isinstance(count, int) or count < 1:
        raise CannotCapture("its configuration does not say how many layers it has")
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return [False] * count
    if unusual := sorted({kind for kind in kinds if kind not in _USUAL_LAYERS}):
        raise CannotCapture(f"it has layers of {', '.join(unusual)}")
    return [kind == "sliding_attention" for kind in kinds][:count]


def _check_rotary(config: Any) -> None:
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    for one in nested or [parameters]:
        kind = one.get("rope_type", one.get("type", "default"))
        if kind not in _STEADY_ROTARY:
            raise CannotCapture(f"its rotary embedding ({kind}) depends on the length of the text")


def _sizes(model: Any, sliding: list[bool]) -> tuple[list[Any], torch.dtype]:
    """One word through the model as it is, to see what its cache holds."""
    cache = DynamicCache()
    cache.layers = [RoomyLayer(one) for one in sliding]
    model(input_ids=torch.zeros(1, 1, dtype=torch.long), past_key_values=cache, use_cache=True)
    for number, layer in enumerate(cache.layers):
        if not layer.is_initialized:
            raise CannotCapture(f"its layer {number} keeps no keys")
    dtypes = {layer.dtype for layer in cache.layers}
    if len(dtypes) != 1:
        raise CannotCapture("its layers keep numbers of several dtypes")
    return [layer.sizes for layer in cache.layers], dtypes.pop()


def _memory(sizes: list[Any], batch: int, room: int, dtype: torch.dtype) -> list[Tensor]:
    return [torch.zeros(batch, heads, room, key + value, dtype=dtype) for heads, key, value in sizes]


def capture(model: Any, sliding: list[bool]) -> Captured:
    """Trace the step of a model with such layers, optimise it and compare it. CannotCapture says why not."""
    register()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sizes, dtype = _sizes(model, sliding)
            return _traced(model, sliding, sizes, dtype)
    except CannotCapture:
        raise
    except Exception as error:
        text = str(error).strip().splitlines() or [""]
        raise CannotCapture(f"tracing it fails: {type(error).__name__}: {text[0][:200]}") from error


def _traced(model: Any, sliding: list[bool], sizes: list[Any], dtype: torch.dtype) -> Captured:
    usual = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        step = _Step(model, sliding)
        words = torch.randint(0, 50, (2, 3), generator=torch.Generator().manual_seed(1))
        example = (
            words,
            torch.arange(2, 5).expand(2, 3),
            torch.arange(3),
            torch.tensor(2),
            torch.ones(2, 5, dtype=torch.bool),
            *_memory(sizes, 2, 9, dtype),
        )
        graph = torch.jit.trace(step, example, check_trace=False, strict=False)
    finally:
        model.set_attn_implementation(usual)
    _check_layers(model, step.step, sliding)
    optimized = wrapped(_C.jit_optimize(cpp_module(graph.eval(), "llm.optimize")))
    captured = Captured(optimized, sliding, sizes, dtype, step.output)
    _compare(model, captured)
    return captured


def _check_layers(model: Any, step: Any, sliding: list[bool]) -> None:
    if sorted(step.layers) != list(range(len(sliding))):
        raise CannotCapture("some of its layers attend in a way of their own")
    window = getattr(model.config.get_text_config(decoder=True), "sliding_window", None)
    if any(sliding) and set(step.masks) != {0, window} - ({0} if all(sliding) else set()):
        raise CannotCapture("its layers see other words than its configuration says")


def _compare(model: Any, captured: Captured) -> None:
    """Seven words at once in the model, and in steps of four, two and one in the graph; padded and not."""
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    words = torch.randint(0, vocabulary, (2, 7), generator=torch.Generator().manual_seed(2))
    for batch, padding in ((1, 0), (2, 2)):
        counts = torch.ones(batch, 7, dtype=torch.long)
        counts[0, :padding] = 0
        places = (counts.cumsum(1) - 1).clamp(min=0)
        expected = model(
            input_ids=words[:batch], attention_mask=counts, position_ids=places, use_cache=False
        ).logits.float()
        memory = _memory(captured.sizes, batch, 11, captured.dtype)
        found, past = [], 0
        for count in (4, 2, 1):
            here = slice(past, past + count)
            attended = counts[:, : past + count].bool() if padding else torch.empty(0, dtype=torch.bool)
            found.append(
                captured.graph(
                    words[:batch, here], places[:, here], torch.arange(count), torch.tensor(past), attended, *memory
                )
            )
            past += count
        read = counts.bool()
        difference = (torch.cat(found, 1).float() - expected)[read].abs().max().item()
        largest = expected[read].abs().max().item()
        if not difference <= _TOLERANCE[captured.dtype] * largest:
            raise CannotCapture(f"its step computes other logits: they differ by {difference:.2g} of {largest:.2g}")
