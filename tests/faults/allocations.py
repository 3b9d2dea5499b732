"""An allocation fails while a model is optimised, saved, loaded or called: allocation number n of an action."""

from __future__ import annotations

import copy
import functools
import gc
import random
import re
from typing import Any

import torch
from torch import Tensor

import ipex
from faults.actions import ACTIONS, Action, are_close, flat, quietly
from faults.cases import Cases
from faults.injecting import Injector

REPETITIONS = 8
# Bytes of malloc's that a repetition may leave. torch keeps something of each module, and not always the same.
MOST_GROWTH, MOST_GROWTH_WITH_MODULES = 64, 32_000
ABOUT_MEMORY = re.compile("alloc|memory|oneDNN|primitive|too little|no bytes|system has no|thread", re.IGNORECASE)


class Allocations(Cases):
    """Cases of which each is an action and a number."""

    title = "allocations"
    good = ("raised", "right", "not reached")

    def case(self, name: str, draw: random.Random, measured: Any, expected: list[Tensor]) -> str:
        n = draw.randrange(measured) if measured else 0
        quietly()
        return Case(name, n, expected, looks_for_leaks=draw.random() < 0.25).run()

    def measure(self, name: str) -> tuple[Any, Any, Any]:
        """How many allocations the action makes."""
        quietly()
        injector, action = Injector(), ACTIONS[name]
        state = action.prepare()
        result, error, count = injector.run(lambda: action.act(state))
        if error:
            raise error
        return count, state, result


class Case:
    """One action, of which allocation number n fails; then the same undisturbed."""

    def __init__(self, name: str, n: int, expected: list[Tensor], looks_for_leaks: bool) -> None:
        self.action: Action = ACTIONS[name]
        self.n, self.expected, self.looks_for_leaks = n, expected, looks_for_leaks
        self.injector = Injector()

    def run(self) -> str:
        state = self.action.prepare()
        before = copy.deepcopy(state.tensors)
        result, error, _ = self.injector.run(functools.partial(self.action.act, state), self.n)
        if not self.injector.has_failed():
            return "not reached" if error is None else f"raised without a fault: {_text(error)}"
        place = self.injector.where()
        wrong = self._judge_error(error) if error else self._judge_value(state, result, "wrong value")
        wrong = wrong or self._judge_after(state, before, error)
        del state, result
        if not wrong and self.looks_for_leaks:
            wrong = self._leaks()
            place = self.injector.where()  # it may be another one by now
        if wrong:
            return f"{wrong} [{place}]"
        return "raised" if error else "right"

    def _judge_error(self, error: BaseException) -> str:
        if not isinstance(error, (RuntimeError, MemoryError)):
            return f"not an error of memory: {_text(error)}"
        if not ABOUT_MEMORY.search(str(error)):
            return f"says nothing of memory: {_text(error)}"
        return ""

    def _judge_value(self, state: Any, result: Any, what: str) -> str:
        try:
            found = flat(self.action.value(state, result))
        except Exception as raised:
            return f"{what}: {_text(raised)}"
        return "" if are_close(found, self.expected, self.action.tolerance) else what

    def _judge_after(self, state: Any, before: list[Tensor], error: BaseException | None) -> str:
        if not _are_same(state.tensors, before):
            return "the caller's tensors are others"
        if self.action.may_be_half_done:
            state = self.action.prepare()
        try:
            result = self.action.act(state)
        except Exception as raised:
            return f"the same again raises: {_text(raised)}"
        return self._judge_value(state, result, "the same again gives a wrong value")

    def _leaks(self) -> str:
        """What is left of repetitions with a fault, and isn't of those without."""
        without, with_fault = self._growth(-1), self._growth(self.n)
        most = dict.fromkeys(with_fault, 0)
        most["heap"] = MOST_GROWTH if self.action.is_repeated else MOST_GROWTH_WITH_MODULES
        return "; ".join(
            f"leaks {kind}" for kind, bytes_ in with_fault.items() if bytes_ > max(without[kind], 0) + most[kind]
        )

    def _growth(self, failing: int) -> dict[str, int]:
        """The least growth of one repetition, after the first ones."""
        steps: list[dict[str, int]] = []
        state = self.action.prepare()
        last = self._in_use()
        for _ in range(REPETITIONS):
            self.injector.run(functools.partial(self.action.act, state), failing)
            if not self.action.is_repeated:
                state = self.action.prepare()
            now = self._in_use()
            steps.append({kind: now[kind] - last[kind] for kind in now})
            last = now
        return {kind: min(step[kind] for step in steps[REPETITIONS // 2 :]) for kind in last}

    def _in_use(self) -> dict[str, int]:
        gc.collect()
        ipex.empty_cache()
        return {
            "ipex's memory": ipex.memory_allocated(),
            "ipex's segments": ipex.memory_reserved(),
            "heap": self.injector.heap_bytes(),
        }


def _are_same(found: list[Tensor], expected: list[Tensor]) -> bool:
    return all(f.shape == e.shape and torch.equal(f, e) for f, e in zip(found, expected))


def _text(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines[-1] if lines else '')[:120]}"
