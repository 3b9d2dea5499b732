"""Static int8 of a step: observed in one model, quantized with the scales of a file in the next."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from ..quantization import Prepared, Recipe
from ._capture import optimized


class Calibration:
    """Keeps the trace of a step, to make of it what observes, and what computes in int8."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._trace: torch.jit.ScriptModule | None = None
        self._step: Prepared | None = None

    def optimized(self, graph: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
        """Return the optimised graph, which is compared with the model: nothing observes that."""
        self._trace = graph
        return optimized(graph)

    def observed(self) -> torch.jit.ScriptModule:
        """Return the graph that computes in floats, and observes."""
        assert self._trace is not None
        inside = [f"model.{name}" for name in self._recipe.float_layers]  # as the step names them
        self._step = Prepared(self._trace, dataclasses.replace(self._recipe, float_layers=inside))
        return self._step._observed

    def quantized(self, summary: str | Path) -> torch.jit.ScriptModule:
        """Return the graph that computes in int8, with the scales of a file."""
        self.observed()
        assert self._step is not None
        self._step.load_qconf_summary(summary)
        return self._step.convert()

    def prepared(self, model: Any, recipe: Recipe) -> PreparedModel:
        """Return what `ipex.quantization.prepare` does of the model that runs the observed step."""
        if recipe != self._recipe:
            raise ValueError(
                "ipex.quantization.prepare: expected the recipe that ipex.llm.optimize was given, got another. Give it "
                f"{self._recipe}."
            )
        assert self._step is not None
        return PreparedModel(model, self._step)


class PreparedModel(Prepared):
    """A language model whose step observes. It is called as the model is."""

    def __init__(self, model: Any, step: Prepared) -> None:
        vars(self).update(vars(step), _observed=model)

    def convert(self) -> torch.jit.ScriptModule:
        """Raise: a step alone is no model."""
        raise TypeError(
            "ipex.quantization.convert: expected a prepared module, got the step of a language model. Write its scales "
            "by save_qconf_summary(file), and call ipex.llm.optimize(model, quantization_config=recipe, "
            "qconfig_summary_file=file)."
        )
