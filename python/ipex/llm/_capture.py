"""Traces the step of a language model: some words in, the logits of the next out, once for all lengths and batches."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from .._load_extension import _C
from .._script_module import cpp_module, wrapped
from .._tolerance import tolerance_for
from .._torch_internals import trace
from ..quantization._weight_only_module import precision_of_rows
from . import _rotary
from ._attention import NAME, CannotCapture, Step, register, running
from ._autograd_functions import as_their_ops
from ._cache import RoomyLayer

_Result = TypeVar("_Result")
_Make = Callable[[torch.jit.ScriptModule], torch.jit.ScriptModule]
# Rotary embeddings whose frequencies do not depend on the length of the text.
_STEADY_ROTARY = ("default", "linear", "llama3", "yarn", "proportional")
_USUAL_LAYERS = ("full_attention", "sliding_attention")
# Words of the steps that are compared. A model's own Python may ask for lengths: those of the example are among them,
# and powers of two are passed.
_SHORT_STEPS = (4, 2, 1)
LONG_STEPS = (1, 4, 3, 2, 1, 1, 8, 1, 13)


@dataclass
class Captured:
    """The optimised graph of a step, and what its memory looks like."""

    graph: torch.jit.ScriptModule
    sliding: list[bool]
    sizes: list[tuple[int, int, int]]  # of each layer: heads, numbers of a key, numbers of a value
    dtype: torch.dtype
    output: type
    own_attention: str = ""  # why attention is not one op
    codes: torch.dtype | None = None  # of 8 bits, in which keys and values are kept; None for `dtype`
    counts_attended: bool = False  # whether positions that nobody gives are those among the words that count

    @property
    def reads_attended(self) -> bool:
        """Whether the graph is told of each word that it counts, also where all do."""
        return bool(self.own_attention)


class _TracedLayer(RoomyLayer):
    """Hands keys and values on: the attention behind it keeps them."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return key_states, value_states


class PlainLayer(RoomyLayer):
    """Keeps them by plain ops, and says lengths that are tensors of the graph."""

    def __init__(self, is_sliding: bool, memory: Tensor, key_numbers: int, past: Any) -> None:
        super().__init__(is_sliding)
        self._memory, self._key_numbers, self.length = memory, key_numbers, past
        self.is_initialized = True
        self.updates = 0
        self._both = super()._sides()  # once in the graph

    def _sides(self) -> tuple[Tensor, ...]:
        return self._both

    def room(self, words: int) -> Tensor:
        assert self._memory is not None
        return self._memory  # the caller of the graph has seen to it

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.updates += 1
        return super().update(key_states, value_states)


class TracedStep(nn.Module):
    """What is traced. `memory` is that of each layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.takes_kept = "logits_to_keep" in arguments_of(model)
        self.cache_name = cache_name(arguments_of(model))
        self.output: type = tuple  # of the last call, for whoever traces it

    def check(self, model: Any) -> None:
        """CannotCapture where the last call was not what a graph can stand for."""

    def _run(self, kept: Tensor, cache: Any, **inputs: Any) -> Tensor:
        inputs[self.cache_name] = cache
        if self.takes_kept:
            inputs["logits_to_keep"] = kept
        result = self.model(use_cache=True, **inputs)
        self.output = type(result)
        logits: Tensor = result.logits
        return logits if self.takes_kept else logits[:, kept]


class _AttendingStep(TracedStep):
    """Its attention is one op, which keeps keys and values too."""

    def __init__(self, model: nn.Module, sliding: list[bool], sizes: list[Any]) -> None:
        super().__init__(model)
        self._sliding = sliding
        self._step: Step | None = None

    def forward(
        self, words: Tensor, places: Tensor, kept: Tensor, past: Tensor, attended: Tensor, *memory: Tensor
    ) -> Tensor:
        self._step = Step(words, past, attended, memory)
        with running(self._step):
            cache = cache_of([_TracedLayer(sliding) for sliding in self._sliding])
            return self._run(kept, cache, input_ids=words, position_ids=places)

    def check(self, model: Any) -> None:
        assert self._step is not None
        if sorted(self._step.layers) != list(range(len(self._sliding))):
            raise CannotCapture("some of its layers attend in a way of their own")
        window = getattr(model.config.get_text_config(decoder=True), "sliding_window", None)
        if any(self._sliding) and set(self._step.masks) != {0, window} - ({0} if all(self._sliding) else set()):
            raise CannotCapture("its layers see other words than its configuration says")


class _PlainStep(TracedStep):
    """Its attention and its masks are the model's own."""

    def __init__(self, model: nn.Module, sliding: list[bool], sizes: list[Any]) -> None:
        super().__init__(model)
        self._sliding = sliding
        self._key_numbers = [numbers for _, numbers, _ in sizes]
        self._layers: list[PlainLayer] = []

    def forward(
        self, words: Tensor, places: Tensor, kept: Tensor, past: Tensor, attended: Tensor, *memory: Tensor
    ) -> Tensor:
        self._layers = [PlainLayer(*one, past) for one in zip(self._sliding, memory, self._key_numbers)]
        cache, mask = cache_of(self._layers), attended.long()
        return self._run(kept, cache, input_ids=words, position_ids=places, attention_mask=mask)

    def check(self, model: Any) -> None:
        if any(layer.updates != 1 for layer in self._layers):
            raise CannotCapture("several of its layers share keys and values")


def arguments_of(model: nn.Module) -> tuple[str, ...]:
    """Return what the forward of a model takes by name."""
    return tuple(inspect.signature(type(model).forward).parameters)  # also where it is wrapped, twice


def cache_name(names: Collection[str]) -> str:
    """Return which of these arguments, or fields, is the cache: transformers 5.24 renamed it."""
    return "cache" if "cache" in names else "past_key_values"


def cache_of(layers: list[Any]) -> DynamicCache:
    """Return a cache of these layers."""
    cache = DynamicCache()
    cache.layers = layers
    return cache


def layers_of(model: Any) -> list[bool]:
    """Return for each layer whether it slides. CannotCapture for what can be told before the model is run."""
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
        if kind not in _STEADY_ROTARY and not (kind == _rotary.KIND and not nested):
            raise CannotCapture(f"its rotary embedding ({kind}) depends on the length of the text")


def _sizes(model: Any, sliding: list[bool]) -> tuple[list[Any], torch.dtype]:
    """One word through the model as it is, to see what its cache holds."""
    cache = cache_of([RoomyLayer(one) for one in sliding])
    model(input_ids=torch.zeros(1, 1, dtype=torch.long), use_cache=True, **{cache_name(arguments_of(model)): cache})
    return sizes_of(cache.layers)


def sizes_of(layers: list[RoomyLayer]) -> tuple[list[Any], torch.dtype]:
    """Return the sizes of each layer, once words were kept, and the dtype of all."""
    for number, layer in enumerate(layers):
        if not layer.is_initialized:
            raise CannotCapture(f"its layer {number} keeps no keys")
    dtypes = {layer.dtype for layer in layers}
    if len(dtypes) != 1:
        raise CannotCapture("its layers keep numbers of several dtypes")
    return [layer.sizes for layer in layers], dtypes.pop()


def memory_of(sizes: list[Any], batch: int, room: int, dtype: torch.dtype) -> list[Tensor]:
    """Return memory for each layer."""
    return [torch.zeros(batch, heads, room, key + value, dtype=dtype) for heads, key, value in sizes]


def optimized(graph: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Return the optimised graph of a traced step."""
    return wrapped(_C.jit_optimize(cpp_module(graph, "llm.optimize")))


def capture(model: Any, sliding: list[bool], made: _Make = optimized) -> Captured:
    """Trace the step of a model with such layers, optimise it and compare it. CannotCapture says why not."""
    register()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes, dtype = tried(_sizes, model, sliding)
        usual = model.config._attn_implementation
        try:
            model.set_attn_implementation(NAME)
            try:
                graph, output = tried(_trace, model, _AttendingStep, sliding, sizes, dtype, made)
            finally:
                model.set_attn_implementation(usual)
            return tried(_compared, model, Captured(graph, sliding, sizes, dtype, output))
        except CannotCapture as error:
            reason = str(error)
        try:
            graph, output = tried(_trace, model, _PlainStep, sliding, sizes, dtype, made)
            return tried(_compared, model, Captured(graph, sliding, sizes, dtype, output, reason))
        except CannotCapture as error:
            raise CannotCapture(f"{reason}; with its own attention, {error}") from error


def tried(function: Callable[..., _Result], *args: Any) -> _Result:
    """Return what a function of arguments returns. What goes wrong in it is a reason not to capture."""
    try:
        return function(*args)
    except CannotCapture:
        raise
    except Exception as error:
        text = str(error).strip().splitlines() or [""]
        raise CannotCapture(f"tracing it fails: {type(error).__name__}: {text[0][:200]}") from error


def _trace(
    model: Any, kind: type, sliding: list[bool], sizes: list[Any], dtype: torch.dtype, made: _Make
) -> tuple[Any, type]:
    step = kind(model, sliding, sizes)
    example = (
        torch.randint(0, 50, (2, 3), generator=torch.Generator().manual_seed(1)),
        torch.arange(2, 5).repeat(2, 1),  # some models write into them
        torch.arange(3),
        torch.tensor(2),
        torch.ones(2, 5, dtype=torch.bool),
        *memory_of(sizes, 2, 9, dtype),
    )
    return traced(model, step, example, made), step.output


def traced(model: Any, step: TracedStep, example: tuple[Any, ...], made: _Make = optimized) -> torch.jit.ScriptModule:
    """Return what is made of the graph of a step."""
    with _rotary.chosen_by_length(model), as_their_ops():
        graph = trace(step, example, strict=False)
    step.check(model)
    return made(graph.eval())


def _compared(model: Any, captured: Captured) -> Captured:
    """The same, once the model and steps of the graph have computed the same of a text, padded and not."""
    counts = LONG_STEPS if captured.reads_attended else _SHORT_STEPS
    total = sum(counts)
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    words = torch.randint(0, vocabulary, (2, total), generator=torch.Generator().manual_seed(2))
    for batch, padding in ((1, 0), (2, 2)):
        read = torch.ones(batch, total, dtype=torch.bool)
        read[0, :padding] = False
        places = (read.long().cumsum(1) - 1).clamp(min=0)
        logits = partial(_logits, model, words[:batch], read)
        expected = logits(position_ids=places)
        if padding:
            of_none = logits()
            captured.counts_attended = _is_same(model, of_none, expected, captured.dtype) and not _is_same(
                model, of_none, logits(position_ids=torch.arange(total).expand(batch, total)), captured.dtype
            )
        memory = memory_of(captured.sizes, batch, total + 4, captured.dtype)
        found, past = [], 0
        for count in counts:
            here = slice(past, past + count)
            attended = read[:, : past + count]
            if not padding and not captured.reads_attended:
                attended = torch.empty(0, dtype=torch.bool)
            found.append(
                captured.graph(
                    words[:batch, here], places[:, here], torch.arange(count), torch.tensor(past), attended, *memory
                )
            )
            past += count
        check_same(model, torch.cat(found, 1)[read].float(), expected, captured.dtype)
    return captured


def _logits(model: Any, words: Tensor, read: Tensor, **more: Any) -> Tensor:
    """What the model itself says behind each word that counts."""
    result: Tensor = model(input_ids=words, attention_mask=read.long(), use_cache=False, **more).logits
    return result[read].float()


def _is_same(model: Any, found: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    try:
        check_same(model, found, expected, dtype)
    except CannotCapture:
        return False
    return True


def check_same(model: Any, found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """CannotCapture where a step computes other logits."""
    tolerance = tolerance_for(dtype, precision_of_rows(model))
    difference, largest = (found - expected).abs().max().item(), expected.abs().max().item()
    if not difference <= tolerance * largest:
        raise CannotCapture(f"its step computes other logits: they differ by {difference:.2g} of {largest:.2g}")
