"""Actions that go wrong once an allocation fails, each in its way: the test looks at what is said of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as State
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "examples")]

import torch  # noqa: E402

from children import run_in_children  # noqa: E402
from faults.actions import ACTIONS, Action, quietly  # noqa: E402
from faults.allocations import Allocations  # noqa: E402

kept: list[Any] = []


def failing(act: Callable[[State], Any]) -> Callable[[State], Any]:
    """Do something of ipex's, and where an allocation of that fails, `act`."""

    def either(state: State) -> Any:
        try:
            torch.ops.ipex.softmax(state.x, 1, None)
        except (RuntimeError, MemoryError):
            state.has_failed = True
            return act(state)
        return state.x * 2

    return either


def _state() -> State:
    x = torch.ones(2, 3)
    return State(x=x, tensors=[x], has_failed=False)


def _raise(error: Exception) -> Any:
    raise error


def _keep(state: State) -> Any:
    kept.append(torch.empty(100_000))
    return state.x * 2


def _for_good(state: State) -> Any:
    if state.has_failed:
        raise RuntimeError("out of memory")
    return failing(lambda s: _raise(RuntimeError("out of memory")))(state)


PLANTED: dict[str, Callable[[State], Any]] = {
    "nothing": failing(lambda s: s.x * 2),
    "a wrong value": failing(lambda s: s.x * 3),
    "another error": failing(lambda s: _raise(ValueError("no"))),
    "fails for good": _for_good,
    "writes": failing(lambda s: s.x.add_(1)),
    "keeps": failing(_keep),
    "dies": failing(lambda s: os.kill(os.getpid(), signal.SIGSEGV)),
}


class Planted(Allocations):
    """One case of each, which fails at its first allocation."""

    def drawn(self, index: int) -> tuple[str, Any]:
        name, draw = super().drawn(index)
        del name
        draw.randrange = lambda count: 0  # type: ignore[method-assign]
        draw.random = lambda: 0.0  # type: ignore[method-assign]
        return self._names[index], draw


def main() -> None:
    quietly()
    ACTIONS.clear()
    ACTIONS.update({f"first call: {name}": Action(_state, act, is_repeated=True) for name, act in PLANTED.items()})
    cases = Planted(1, "")
    cases.prepare(range(len(PLANTED)))
    run_in_children(
        cases.run, good=cases.good, name_of=cases.name_of, title="planted", cases=len(PLANTED), cases_of_a_child=1
    )


if __name__ == "__main__":
    main()
