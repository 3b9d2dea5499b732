"""One case from the database to a verdict, in this process. children.py runs it in another, for it may crash."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import ipex
from op_database.cases import Case
from op_database.compare import Narrow, Outcome, difference, observe
from op_database.database import UNINITIALISED, entries
from op_database.program import NoCase, Program, program

DISTURBANCES = 4
CALLS = 3  # TorchScript compiles anew at the second
Optimize = Callable[..., Any]

KINDS = {
    "clean": "the optimised model does as eager does",
    "no case": "the op has no such sample, or eager refuses it",
    "random": "eager does not repeat itself",
    "not traceable": "TorchScript can't trace or script it",
    "stock differs": "TorchScript, or its freezing, differs from eager by itself, as the optimised model does",
    "wrong": "none of these",
    "crash": "the process died or hung",
}


class Verdict(NamedTuple):
    kind: str
    detail: str = ""
    source: str = ""


class Autocast(nn.Module):
    """The model under autocast. The tracer can't follow cached casts."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *arguments: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            return self.model(*arguments)


def check(case: Case, optimize: Optimize = ipex.jit_optimize) -> Verdict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            written = program(case)
        except NoCase as reason:
            return Verdict("no case", str(reason))
        return _Check(case, written, optimize).verdict()


class _Check:
    def __init__(self, case: Case, written: Program, optimize: Optimize) -> None:
        self.case, self.program, self.optimize = case, written, optimize
        self.arguments = written.arguments
        self.narrow: Narrow | None = None
        self.values = entries()[case.op].name not in UNINITIALISED

    def verdict(self) -> Verdict:
        model = self._model()
        expected = observe(model, self.arguments)
        if expected.error is not None:
            return self._say("no case", f"eager raises {expected.error}")
        if self._differs(observe(model, self.arguments), expected) is not None:
            return self._say("random", "eager differs from eager")
        # Random numbers: TorchScript may draw them in another order.
        self.values &= self._differs(observe(model, self.arguments, seed=2), expected) is None
        try:
            stock = self._torchscript()
        except Exception as error:
            return self._say("not traceable", f"{type(error).__name__}: {str(error).strip()}")
        given = {"dtype": torch.bfloat16} if self.case.variant == "given bfloat16" else {}
        try:
            optimized = self.optimize(stock, **given)
        except Exception as error:
            try:
                torch.jit.freeze(self._torchscript())
            except Exception:
                return self._say("stock differs", "torch.jit.freeze raises")
            return self._say("wrong", f"optimising raises {type(error).__name__}: {str(error).strip()}")
        # All calls before the first comparison: a result that a later call overwrites is seen.
        for call, ours in enumerate([observe(optimized, self.arguments) for _ in range(CALLS)]):
            found = self._differs(ours, expected)
            if found is not None:
                stocks = self._stock_with(ours, expected)
                if stocks is not None:
                    return self._say("stock differs", stocks)
                return self._say("wrong", f"call {call}: {found}")
        return self._say("clean", "")

    def _say(self, kind: str, detail: str) -> Verdict:
        return Verdict(kind, detail, self.program.source)

    def _model(self) -> nn.Module:
        """The eager model; for 16 bits, what the results are held against too."""
        model = self.program.build()
        if self.case.variant == "autocast":
            model = Autocast(model).eval()
        if self.case.dtype == "bfloat16" or self.case.variant in ("given bfloat16", "autocast"):
            # What is rounded already shows what is rounded once too often.
            self.arguments = tuple(_to(a, torch.float32, torch.bfloat16, a.dtype) for a in self.arguments)
            evaluations = (self._stock_16_bit, self._exact, self._disturbed)
            self.narrow = Narrow(torch.bfloat16, *(functools.cache(evaluate) for evaluate in evaluations))
        return model

    def _stock_16_bit(self) -> Outcome:
        model = self.program.build()
        if self.case.variant == "given bfloat16":
            arguments = tuple(_to(a, torch.float32, torch.bfloat16) for a in self.arguments)
            stock = observe(copy.deepcopy(model).to(torch.bfloat16), arguments)
            if stock.error is None:
                return stock
            # An op without kernels for 16 bits, between linears and convolutions that have them.
            return observe(_rounding_layers(model), self.arguments)
        return observe(Autocast(model).eval() if self.case.variant == "autocast" else model, self.arguments)

    def _exact(self) -> Outcome:
        arguments = tuple(_to(a, torch.bfloat16, torch.float32) for a in self.arguments)
        return observe(self.program.build().float(), arguments)

    def _disturbed(self) -> list[Outcome]:
        found = []
        for seed in range(DISTURBANCES):
            disturb = functools.partial(_disturb, generator=torch.Generator().manual_seed(seed))
            model = self.program.build().float()
            for tensor in [*model.parameters(), *model.buffers()]:
                tensor.data = disturb(tensor.data)
            arguments = tuple(disturb(_to(a, torch.bfloat16, torch.float32)) for a in self.arguments)
            found.append(observe(model, arguments))
        return found

    def _torchscript(self) -> torch.jit.ScriptModule:
        model, arguments = self._model(), self.arguments
        with torch.no_grad():
            if self.case.variant == "scripted":
                return torch.jit.script(model)
            torch.manual_seed(1)
            return torch.jit.trace(model, copy.deepcopy(arguments), check_trace=False)

    def _stock_with(self, ours: Outcome, expected: Outcome) -> str | None:
        """How TorchScript alone differs from eager, where it does as ours does."""
        makers: list[Callable[[Any], Any]] = [lambda module: module, torch.jit.freeze]
        for maker in makers:
            try:
                module = maker(self._torchscript())
            except Exception:
                continue
            for _ in range(CALLS):
                stock = observe(module, self.arguments)
                found = self._differs(stock, expected)
                if found is not None and self._differs(ours, stock) is None:
                    return found
        return None

    def _differs(self, actual: Outcome, expected: Outcome) -> str | None:
        return difference(actual, expected, self.narrow, self.values)


def _rounding_layers(model: nn.Module) -> nn.Module:
    for layer in model.children():
        layer.register_forward_pre_hook(lambda _, inputs: inputs[0].bfloat16().float())
        layer.register_forward_hook(lambda _, inputs, output: output.bfloat16().float())
    return model


def _disturb(values: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers that bfloat16 could have been rounded from."""
    if values.dtype != torch.float32:
        return values
    by = torch.rand(values.shape, generator=generator) * 2 - 1
    return values * (1 + torch.finfo(torch.bfloat16).eps / 2 * by)


def _to(tensor: Tensor, only: torch.dtype, *dtypes: torch.dtype) -> Tensor:
    """The tensor through these dtypes, if it has the one named first."""
    for dtype in dtypes if tensor.dtype == only else ():
        tensor = tensor.to(dtype)
    return tensor
