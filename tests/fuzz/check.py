"""One case from its text to a verdict, in this process. A crash takes the process along: worker.py sees to that."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

import ipex
from fuzz.compare import difference
from fuzz.outcome import Outcome, run
from fuzz.stages import build, frozen, round_trip, torchscript, what_was_fused
from fuzz.strategies import Case

Optimize = Callable[[torch.jit.ScriptModule], Any]
DISTURBANCES = 6


class Verdict(NamedTuple):
    """`kind` is one of:

    clean                the optimised module does as eager does
    torchscript differs  it does as the scripted or traced module does, which eager does not
    freeze differs       it does as torch.jit.freeze does, which eager and the module before freezing do not
    both crashed         the process does not survive without ipex either
    rejected             not a program that eager and TorchScript take
    failed               none of these
    """

    kind: str
    category: str = ""
    detail: str = ""
    fused: tuple[str, ...] = ()  # packed ops of the graph, and passes that did something


class Mismatch(NamedTuple):
    category: str = ""
    detail: str = ""
    as_frozen: bool = False


def check(case: Case, optimize: Optimize = ipex.jit_optimize, stage: Callable[[str], None] = lambda _: None) -> Verdict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _Check(case, optimize, stage).verdict()


class _Check:
    def __init__(self, case: Case, optimize: Optimize, stage: Callable[[str], None]) -> None:
        self.case, self.optimize, self.stage = case, optimize, stage
        self.stock: list[Outcome] | None = None
        self.differs = False

    def verdict(self) -> Verdict:
        self.stage("eager")
        try:
            self.model = build(self.case.source)
        except Exception as error:
            return Verdict("rejected", "build", f"{type(error).__name__}: {error}")
        self.expected = [run(self.model, call) for call in self.case.calls]
        self.stage("torchscript")
        try:
            module = torchscript(self.model, self.case.how, self.case.calls[0])
        except Exception as error:
            eager = self.expected[0].error
            return Verdict(
                "rejected", "eager raises" if eager else "torchscript", eager or f"{type(error).__name__}: {error}"
            )
        before = str(module.graph) if self.case.saved else ""
        self.stage("optimize")
        try:
            optimized = self.optimize(module)
        except Exception as error:
            return self._optimize_raised(module, error)
        fused = what_was_fused(optimized) if self.optimize is ipex.jit_optimize else set()
        found = self._compare(optimized, "run optimised")
        if found is None and self.case.saved:
            if str(module.graph) != before:
                found = Mismatch("original changed", "the graph of the module that was optimised is another one")
            self.stage("save and load")
            try:
                loaded = round_trip(optimized)
            except Exception as error:
                found = Mismatch("save and load", f"{type(error).__name__}: {error}")
            else:
                found = found or self._compare(loaded, "run loaded")
        kind = "torchscript differs" if self.differs else "clean"
        if found is not None:
            kind = "freeze differs" if found.as_frozen else "failed"
        return Verdict(kind, *(found or Mismatch())[:2], tuple(sorted(fused)))

    def _optimize_raised(self, module: torch.jit.ScriptModule, error: Exception) -> Verdict:
        try:
            round_trip(frozen(module))
        except Exception as stock:
            return Verdict("torchscript differs", "freeze raises", str(stock))
        return Verdict("failed", "optimize raises", f"{type(error).__name__}: {error}")

    def _compare(self, module: Any, stage: str) -> Mismatch | None:
        for index, call in enumerate(self.case.calls):
            self.stage(f"{stage}, call {index}")
            actual = run(module, call)
            self.stage("compare")
            noise = functools.partial(self._noise, index)
            found = difference(actual, self.expected[index], noise)
            if found is None:
                continue
            stock = self._stock()[index]
            of_stock = difference(stock, self.expected[index], noise)
            note = ""
            if of_stock is not None:
                self.differs = True
                if self.expected[index].error is not None and stock.error is None:
                    continue  # what TorchScript computes where eager refuses may be anything: there is no truth
                if difference(actual, stock, noise) is None:
                    continue
                note = f" (TorchScript alone: {of_stock[1]})"
            of_frozen = self._frozen()
            as_frozen = of_frozen is not None and difference(actual, of_frozen[index], noise) is None
            return Mismatch(found[0], f"{stage}, call {index}, {call.mode}: {found[1]}{note}", as_frozen)
        return None

    def _stock(self) -> list[Outcome]:
        """What TorchScript makes of the same calls without ipex."""
        if self.stock is None:
            self.stage("torchscript")
            module = torchscript(build(self.case.source), self.case.how, self.case.calls[0])
            self.stock = [run(module, call) for call in self.case.calls]
        return self.stock

    def _frozen(self) -> list[Outcome] | None:
        """What torch.jit.freeze alone makes of them; None where it can't."""
        self.stage("torchscript")
        module = torchscript(build(self.case.source), self.case.how, self.case.calls[0])
        try:
            module = frozen(module)
        except RuntimeError:
            return None
        return [run(module, call) for call in self.case.calls]

    def _noise(self, index: int, name: str) -> tuple[list[Tensor], Tensor | None]:
        """One tensor of a call in disturbed evaluations, and in float64."""
        disturbed = [self._evaluated(index, name, _disturbance(seed)) for seed in range(DISTURBANCES)]
        torch.set_flush_denormal(True)
        try:
            disturbed.append(self._evaluated(index, name, _disturbance(DISTURBANCES)))
        finally:
            torch.set_flush_denormal(False)
        return [t for t in disturbed if t is not None], self._evaluated(index, name, _widen)

    def _evaluated(self, index: int, name: str, change: Callable[[Tensor], Tensor]) -> Tensor | None:
        """One tensor of a call with weights and inputs changed; None where the call fails then."""
        model, call = copy.deepcopy(self.model), self.case.calls[index]
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.data = change(tensor.data)
        found = dict(run(model, call, change).tensors).get(name)
        return None if found is None else found.detach()


def _disturbance(seed: int) -> Callable[[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def disturb(values: Tensor) -> Tensor:
        if not values.is_floating_point():
            return values
        by = torch.rand(values.shape, generator=generator, dtype=torch.float64) * 2 - 1
        return (values.double() * (1 + 2 * torch.finfo(values.dtype).eps * by)).to(values.dtype)

    return disturb


def _widen(values: Tensor) -> Tensor:
    return values.double() if values.is_floating_point() else values
