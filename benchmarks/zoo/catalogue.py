"""The libraries whose models are in the zoo. Each is a module with `names`, `build`, `inputs` and `LEFT_OUT`."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import random
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from .model import LARGEST, LeftOut, OnlyTensors, count_parameters
from .weights import CALM, draw, draw_batch_norms

LIBRARIES = ("timm", "torchvision", "transformers")


def missing(library: str) -> str | None:
    """Return why a library can't take part, if it can't."""
    needed = ("timm", "torchvision") if library == "timm" else (library,)
    absent = [package for package in needed if importlib.util.find_spec(package) is None]
    return f"{' and '.join(absent)} not installed" if absent else None


def models_of(library: str) -> ModuleType:
    """Import the module of a library."""
    return importlib.import_module(f".{library}_models", __package__)


def in_order(libraries: list[str], seed: int | None) -> list[str]:
    """Return the full names of all models: alphabetically; with a seed shuffled, one of each library in turn."""
    lists = [[f"{library}/{name}" for name in sorted(models_of(library).names())] for library in libraries]
    if seed is None:
        return [name for names in lists for name in names]
    for names in lists:
        random.Random(seed).shuffle(names)
    return [name for turn in itertools.zip_longest(*lists) for name in turn if name]


def why_left_out(full_name: str) -> str | None:
    """Return why the zoo does not even try a model."""
    library, _, name = full_name.partition("/")
    why: str | None = models_of(library).LEFT_OUT.get(name)
    return why


@dataclass(frozen=True)
class Recipe:
    """What a model is made from; pickled, it is the model: no file of weights, no import of a library by its name."""

    name: str
    seed: int
    library_weights: bool = False  # for models that weights of ours make chaotic

    def __reduce__(self) -> tuple[Any, ...]:  # noqa: D105
        return _model, (self.name, self.seed, self.library_weights)


def make(recipe: Recipe) -> tuple[OnlyTensors, tuple[Tensor, ...]]:
    """Build a model in eval mode with random weights, the same ones each time, and its inputs."""
    library, _, name = recipe.name.partition("/")
    models = models_of(library)
    refuse_large(models, name)
    torch.manual_seed(recipe.seed)
    model = models.build(name).eval().requires_grad_(False)
    if recipe.library_weights:
        draw_batch_norms(model, CALM)
    else:
        draw(model)
    inputs = models.inputs(model)
    if isinstance(inputs, dict):
        return OnlyTensors(model, tuple(inputs)), tuple(inputs.values())
    return OnlyTensors(model), inputs


def _model(*recipe: Any) -> OnlyTensors:
    return make(Recipe(*recipe))[0]


def refuse_large(models: ModuleType, name: str) -> None:
    """Raise LeftOut for a model with too many parameters, without the memory for them where its library can."""
    try:
        with torch.device("meta"):
            parameters = count_parameters(models.build(name))
    except Exception:  # it computes with its weights; then the model itself is counted
        parameters = count_parameters(models.build(name))
    if parameters > LARGEST:
        raise LeftOut(f"{parameters / 1e6:.0f} M parameters")
