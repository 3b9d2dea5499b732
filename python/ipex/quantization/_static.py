"""Scales from calibration data."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from .._adapter import adapter_of
from .._explain.decision import decisions_of
from .._jit_optimize import script_module
from .._load_extension import _C
from .._script_module import cpp_module, refuse_optimized, wrapped
from ._recipe import Recipe, check_float_layers
from ._scales import Scale, scale_of
from ._summary import read, write


class Prepared:
    """A model that observes the data it is called with. `ipex.quantization.convert` makes a quantised one of it."""

    def __init__(self, script: torch.jit.ScriptModule, recipe: Recipe) -> None:
        self._script = script
        self._recipe = recipe
        self._loaded: dict[str, Scale] | None = None
        self._observed = self._optimized("prepare", self._ask())
        # A layer whose result nobody reads is in the trace no more.
        there = [name for name, _ in script.named_modules()]
        there += [d.module for d in decisions_of(self._observed._c)]
        check_float_layers("quantization.prepare", recipe.float_layers, "layers to quantise", there)
        self._observers = _observers_of(self._observed)
        if not self._observers:
            raise ValueError(
                "ipex.quantization.prepare: expected a model with a linear or a convolution to quantise, got none. "
                "ipex.explain(ipex.jit_optimize(model)) says what became of its layers."
            )

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Compute in floats, and observe."""
        with torch.no_grad():
            return self._observed(*inputs, **named)

    def scales(self) -> dict[str, Scale]:
        """Return the scale of each tensor that layers read, by the observer's name."""
        if self._loaded is not None:
            return self._loaded
        return {o.key(): scale_of(self._seen(o), self._recipe) for o in self._observers}

    def save_qconf_summary(self, qconf_summary: str | Path) -> None:
        """Write the scales into a file, under IPEX's name for it."""
        write(qconf_summary, self.scales())

    def load_qconf_summary(self, qconf_summary: str | Path) -> None:
        """Take the scales that a model prepared in the same way has written, in place of what was observed."""
        channels = {o.key(): len(o.statistics().get("weight_magnitudes", ())) for o in self._observers}
        self._loaded = read(qconf_summary, channels, "quantization.load_qconf_summary")

    def convert(self) -> torch.jit.ScriptModule:
        """Return the quantised model."""
        return self._optimized("convert", self._ask({key: tuple(scale) for key, scale in self.scales().items()}))

    def _optimized(self, caller: str, asked: tuple[Any, ...]) -> torch.jit.ScriptModule:
        cpp = cpp_module(self._script, f"quantization.{caller}")
        return wrapped(_C.jit_optimize(cpp, quantization=asked), adapter_of(self._script))

    def _ask(self, scales: dict[str, Any] | None = None) -> tuple[Any, ...]:
        recipe = self._recipe
        flags = recipe.attention, recipe.embeddings, recipe.forced
        return scales is None, scales or {}, list(recipe.float_layers), *flags

    @staticmethod
    def _seen(observer: Any) -> dict[str, torch.Tensor]:
        statistics: dict[str, torch.Tensor] = dict(observer.statistics())
        calls, not_finite = statistics["counts"].tolist()
        low, high = statistics["range"].tolist()[:2]
        if not_finite:
            raise ValueError(
                f"ipex.quantization.convert: expected finite numbers at {observer.key()}, got {not_finite} that are "
                "not. Leave such inputs out, or name the layer in the recipe's float_layers."
            )
        if calls == 0 or low > high:
            raise ValueError(
                f"ipex.quantization.convert: expected calibration data at {observer.key()}, got none. "
                "Call the prepared model with inputs like those it will meet."
            )
        return statistics


def _not_of_ipex(prepare: Callable[..., Prepared]) -> Callable[..., Prepared]:
    """Take a recipe in second place, where IPEX has a qconfig. Say what to do about a qconfig, and `inplace`."""

    @wraps(prepare)
    def checked(*args: Any, **kwargs: Any) -> Prepared:
        if len(args) > 1 and isinstance(args[1], Recipe):
            args, kwargs = (args[0], *args[2:]), {"recipe": args[1], **kwargs}
        kinds = [type(value).__name__ for value in (*args, *kwargs.values())]
        strange = [kind for kind in kinds if kind.startswith("QConfig")]
        strange += [name for name in ("inplace", "configure", "bn_folding", "example_kwarg_inputs") if name in kwargs]
        if strange:
            raise TypeError(
                f"ipex.quantization.prepare: expected a model, example_inputs and a Recipe, got {', '.join(strange)}. "
                "Leave out what is IPEX's: a Recipe stands for the qconfig, and a copy is prepared."
            )
        return prepare(*args, **kwargs)

    return checked


@_not_of_ipex
def prepare(
    model: torch.nn.Module,
    example_inputs: Any = None,
    recipe: Recipe | None = None,
) -> Prepared:
    """Return a copy of `model` that observes the data it is called with.

    `model` and `example_inputs` are as in `ipex.jit_optimize`. Call the result with inputs like those that the model
    will meet, a few hundred or so, then `convert` it. Of a language model, prepare what
    `ipex.llm.optimize(model, quantization_config=recipe)` returns, and give what `save_qconf_summary` writes to
    `ipex.llm.optimize` again.

    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval()
    >>> x = torch.randn(256, 64)
    >>> prepared = ipex.quantization.prepare(model, x)
    >>> _ = prepared(x)
    >>> quantized = ipex.quantization.convert(prepared)
    >>> torch.allclose(quantized(x), model(x), atol=0.1)
    True
    """
    recipe = Recipe() if recipe is None else recipe
    if not isinstance(recipe, Recipe):
        got = type(recipe).__name__
        raise TypeError(f"ipex.quantization.prepare: expected an ipex.quantization.Recipe in recipe, got {got}.")
    of_step = getattr(getattr(model, "_compiled_call_impl", None), "prepared", None)
    if of_step is not None:
        prepared: Prepared = of_step(model, recipe)
        return prepared
    script = script_module(model, example_inputs, "quantization.prepare")
    refuse_optimized(script, "quantization.prepare")
    return Prepared(script, recipe)


def convert(prepared: Prepared) -> torch.jit.ScriptModule:
    """Return the quantised model. `prepared` can see more data, and be converted again."""
    if not isinstance(prepared, Prepared):
        got = type(prepared).__name__
        raise TypeError(f"ipex.quantization.convert: expected what ipex.quantization.prepare returns, got {got}.")
    return prepared.convert()


def _observers_of(module: torch.jit.ScriptModule) -> list[Any]:
    observers = []
    index = 0
    while hasattr(module, f"packed_{index}"):
        context = getattr(module, f"packed_{index}")
        if hasattr(context, "statistics"):
            observers.append(context)
        index += 1
    return observers
