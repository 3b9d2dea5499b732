"""Cases of which each is an action, drawn by its number, and a fault in it. An action is measured without one first."""

from __future__ import annotations

import random
import re
from typing import Any

import torch
from torch import Tensor

from children import in_a_fork
from faults.actions import ACTIONS, flat, warm_python


class Cases:
    """What allocations and interrupts share. The draw that chose the action goes on with the fault."""

    title: str
    fitting = re.compile("")  # names of actions that such a fault makes sense in
    good: tuple[str, ...]

    def __init__(self, seed: int, actions: str) -> None:
        self._seed = seed
        self._names = [name for name in ACTIONS if self.fitting.search(name) and re.search(actions, name)]
        self._measured: dict[str, tuple[Any, list[Any]]] = {}

    def drawn(self, index: int) -> tuple[str, random.Random]:
        draw = random.Random(f"{self.title} {self._seed} {index}")
        return draw.choice(self._names), draw

    def name_of(self, index: int) -> str:
        return self.drawn(index)[0]

    def prepare(self, cases: range) -> None:
        """Measure all actions that will be drawn."""
        warm_python()
        for name in {self.name_of(index) for index in cases}:
            self._measured[name] = in_a_fork(lambda name=name: self._measure(name))

    def run(self, index: int) -> str:
        name, draw = self.drawn(index)
        measured, value = self._measured[name]
        answer = self.case(name, draw, measured, [torch.from_numpy(part) for part in value])
        return answer if answer in self.good else f"{name}: {answer}"

    def _measure(self, name: str) -> tuple[Any, list[Any]]:
        """What the faults are drawn from, and the action's value."""
        measured, state, result = self.measure(name)
        return measured, [tensor.numpy() for tensor in flat(ACTIONS[name].value(state, result))]

    def measure(self, name: str) -> tuple[Any, Any, Any]:
        """Do the action without a fault. Return what faults are drawn from, its state and its result."""
        raise NotImplementedError

    def case(self, name: str, draw: random.Random, measured: Any, expected: list[Tensor]) -> str:
        """Do it with one, and return what became of it."""
        raise NotImplementedError
