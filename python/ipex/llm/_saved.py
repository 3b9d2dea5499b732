"""A folder that holds a captured language model: the step with packed weights, and what `generate` asks of the model.

    step.ipex                  the graph of the step, as ipex.aot_save writes one
    step.json                  the class of the model, and what the memory of its step looks like
    config.json, generation_config.json      as transformers write them

The model that comes back has the state of one whose weights were released: its step computes, and nothing else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import ModelOutput

from .._optimize.front_door import REPORT
from .._optimize.notes import Notes
from ._cache import LARGEST_CODES
from ._call import StepCall, without_memory
from ._capture import Captured

_GRAPH, _FACTS = "step.ipex", "step.json"
_VERSION = 1


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_DTYPES = {_name_of(dtype): dtype for dtype in (torch.float32, torch.bfloat16, torch.float16)}
_CODES = {_name_of(dtype): dtype for dtype in LARGEST_CODES} | {None: None}


def save(model: Any, folder: str | os.PathLike[str], save_graph: Callable[[Any, Path], None]) -> None:
    """Write a captured model."""
    call = vars(model)["_compiled_call_impl"]
    if type(call) is not StepCall or call.prepared is not None or call.has_weights:
        raise ValueError(
            "ipex.aot_save: expected a language model that its step alone computes, got one with code of its own. Call "
            "ipex.llm.optimize with deployment_mode=True, and quantize what observes texts; models with an encoder, or "
            "that read images, are not saved."
        )
    name = type(model).__name__
    if getattr(transformers, name, None) is not type(model):
        raise ValueError(f"ipex.aot_save: expected a model that transformers has, got {name}. Others are not saved.")
    captured = call.captured
    facts = {
        field.name: getattr(captured, field.name) for field in dataclasses.fields(captured) if field.name != "graph"
    }
    facts["dtype"] = _name_of(captured.dtype)
    facts["codes"] = captured.codes and _name_of(captured.codes)
    facts["output"] = f"{captured.output.__module__}.{captured.output.__qualname__}"
    to = Path(folder)
    to.mkdir(parents=True, exist_ok=True)
    save_graph(captured.graph, to / _GRAPH)
    model.config.save_pretrained(to)
    if model.generation_config is not None:
        model.generation_config.save_pretrained(to)
    (to / _FACTS).write_text(json.dumps({"version": _VERSION, "model": name, **facts}, indent=1))


def load(folder: str | os.PathLike[str], load_graph: Callable[[Path], Any]) -> Any:
    """Return the model of a folder."""
    path = Path(folder)
    facts = _Facts(path / _FACTS)
    captured = facts.captured(load_graph(path / _GRAPH))
    model = _without_weights(facts.model(), transformers.AutoConfig.from_pretrained(path), captured.dtype)
    if (path / "generation_config.json").is_file():
        model.generation_config = transformers.GenerationConfig.from_pretrained(path)
    call = StepCall(model, captured)
    call.let_weights_go()
    model.__dict__["_compiled_call_impl"] = call
    notes = Notes()
    notes.applied("capture of the step", type(model).__name__, "read from a file of ipex.aot_save")
    model.__dict__[REPORT] = notes.report()
    return model


class _Facts:
    """What step.json says, checked: a file may have been made by anyone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._read = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            self._fail("the facts of a step", str(error).splitlines()[0])
        version = self._get("version", int)
        if version != _VERSION:
            self._fail(f"version {_VERSION}", f"{version}. It is of another ipex: save the model again")

    def model(self) -> Any:
        """Return the class of the model."""
        name = self._get("model", str)
        found = getattr(transformers, name, None)
        if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
            self._fail("a model that transformers has", name)
        return found

    def captured(self, graph: torch.jit.ScriptModule) -> Captured:
        """Return what a call runs."""
        sliding, sizes = self._get("sliding", list), self._get("sizes", list)
        for one in sizes:
            if not (isinstance(one, list) and len(one) == 3 and all(type(n) is int and n > 0 for n in one)):
                self._fail("heads and numbers of keys and values in sizes", one)
        if len(sliding) != len(sizes) or not sizes or not all(type(one) is bool for one in sliding):
            self._fail(f"whether each of {len(sizes)} layers slides", sliding)
        return Captured(
            graph,
            sliding,
            [(heads, key, value) for heads, key, value in sizes],
            _DTYPES[self._one_of("dtype", _DTYPES)],
            self._output(),
            self._get("own_attention", str),
            _CODES[self._one_of("codes", _CODES)],
            self._get("counts_attended", bool),
        )

    def _output(self) -> type:
        name = self._get("output", str)
        module, _, own = name.rpartition(".")
        found: Any = None
        if module.split(".")[0] == "transformers":
            with contextlib.suppress(ImportError):
                found = getattr(importlib.import_module(module), own, None)
        if not (isinstance(found, type) and issubclass(found, ModelOutput) and dataclasses.is_dataclass(found)):
            self._fail("an output of transformers", name)
        kind: type = found
        return kind

    def _get(self, name: str, kind: type) -> Any:
        value = self._read.get(name) if isinstance(self._read, dict) else None
        if type(value) is not kind:
            self._fail(f"{name} of {kind.__name__}", value)
        return value

    def _one_of(self, name: str, known: dict[Any, Any]) -> Any:
        value = self._read.get(name)
        if not isinstance(value, (str, type(None))) or value not in known:
            self._fail(f"one of {', '.join(map(str, known))} in {name}", value)
        return value

    def _fail(self, expected: str, got: Any) -> Any:
        raise RuntimeError(f"ipex.aot_load: expected {expected}, got {got} in {self._path}.")


def _without_weights(kind: Any, config: Any, dtype: torch.dtype) -> Any:
    """A model whose parameters take no memory."""
    with torch.device("meta"):
        model = kind(config).to(dtype)
    return model._apply(without_memory).eval()
