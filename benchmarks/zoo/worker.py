"""The process of one model: `python -m benchmarks.zoo.worker`, driven like the workers of `ipex bench`.

Its orders are the methods of Worker, in their order. Where the process dies, the order says who is to blame.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ipex
from ipex.bench.worker import main

from ..in_turn import median_ratio, times_in_turn
from . import catalogue, shares
from .catalogue import Recipe
from .model import LeftOut, OnlyTensors, count_parameters
from .steadiness import why_unsteady
from .values import Reference, same_inputs

Answer = dict[str, Any]
CALLS = 3  # TorchScript compiles again after the first calls
LEFTOVERS = 3


class Worker:
    """Carries out orders about one model; each method is one."""

    recipe: Recipe
    model: OnlyTensors
    inputs: tuple[Tensor, ...]
    reference: Reference
    traced: torch.jit.ScriptModule
    frozen: torch.jit.ScriptModule
    optimized: torch.jit.ScriptModule

    def build(self, name: str, seed: int, threads: int) -> Answer:
        """Build the model, call it in eager, trace it; or say why the zoo has no use for it."""
        torch.set_num_threads(threads)
        try:
            why = self._make(Recipe(name, seed)) and self._make(Recipe(name, seed, library_weights=True))
            if why:
                raise LeftOut(why)
            self._trace()
        except LeftOut as why:
            return {"status": "left out", "note": str(why)}
        except Exception as error:  # of the library or of torch: ipex had no part in it yet
            return {"status": "left out", "note": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
        return {"parameters": count_parameters(self.model)}

    def optimise(self) -> Answer:
        """Optimise the trace and compare with eager."""
        start = time.perf_counter()
        self.optimized = ipex.jit_optimize(self.traced)
        answer = {"optimise_seconds": time.perf_counter() - start}
        for _ in range(CALLS):
            ours = copy.deepcopy(self.inputs)
            verdict = self.reference.judge(self.optimized(*ours))
            if verdict.status == "ok" and not same_inputs(ours, self.inputs):
                verdict = replace(verdict, status="changed its inputs")
            if verdict.status != "ok":
                break
        return {**answer, **asdict(verdict)}

    def time(self, seconds: float) -> Answer:
        """Time it and the frozen trace in turn, for about so long."""
        frozen, ours = times_in_turn(seconds, [self._call(self.frozen), self._call(self.optimized)])
        return {"frozen_seconds": min(frozen), "ipex_seconds": min(ours), "ratio": median_ratio(frozen, ours)}

    def profile(self) -> Answer:
        """Say where the time of the optimised model goes."""
        found = shares.times_of_ops(self._call(self.optimized))
        left = shares.in_aten(found)
        return {
            "conversions": shares.conversions(found),
            "in_aten": sum(left.values()),
            "leftovers": list(left.items())[:LEFTOVERS],
        }

    def write(self, folder: str) -> Answer:
        """Write the model, its inputs and eager's results for the backends of `ipex bench`."""
        torch.save(self.recipe, Path(folder) / "model.pt")
        torch.save((self.inputs, self.reference.expected), Path(folder) / "data.pt")
        return {}

    def _make(self, recipe: Recipe) -> str | None:
        self.recipe = recipe
        self.model, self.inputs = catalogue.make(recipe)
        return why_unsteady(self.model, self.inputs)

    def _trace(self) -> None:
        self.reference = Reference(self.model, self.inputs, self.model(*copy.deepcopy(self.inputs)))
        self.traced = torch.jit.trace(self.model, copy.deepcopy(self.inputs), check_trace=False)
        self.frozen = torch.jit.freeze(self.traced)
        for _ in range(CALLS):
            actual = self.frozen(*copy.deepcopy(self.inputs))
        if self.reference.judge(actual).status in ("wrong values", "wrong shapes"):
            raise LeftOut("frozen TorchScript differs from eager")

    def _call(self, module: torch.jit.ScriptModule) -> Callable[[], object]:
        return lambda: module(*self.inputs)


if __name__ == "__main__":
    main(Worker())
