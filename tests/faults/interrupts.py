"""Ctrl-C while a model is optimised: at a drawn moment, or as a drawn function of Python's begins."""

from __future__ import annotations

import copy
import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

import ipex
from faults.actions import ACTIONS, are_close, flat, quietly
from faults.cases import Cases


class Interrupts(Cases):
    """Cases of which each is an action and a moment."""

    title = "interrupts"
    fitting = re.compile("^(jit_optimize|optimize|prepare)")
    good = ("interrupted", "not reached")

    def case(self, name: str, draw: random.Random, measured: Any, expected: list[torch.Tensor]) -> str:
        calls, seconds = measured
        quietly()
        if draw.random() < 0.5:
            moment: AtTime | AtCall = AtTime(draw.uniform(0, seconds))
        else:
            moment = AtCall(draw.randrange(calls))
        return _case(name, moment, expected)

    def measure(self, name: str) -> tuple[Any, Any, Any]:
        """How many functions of Python's the action calls, and how long it takes."""
        quietly()
        action = ACTIONS[name]
        state = action.prepare()
        never = AtCall(-1)
        never.run(lambda: action.act(state))
        begin = time.perf_counter()
        result = action.act(state)
        return (never.calls, time.perf_counter() - begin), state, result


class AtCall:
    """When Python's function number n begins: there, too, Python looks for signals."""

    def __init__(self, n: int) -> None:
        self.n, self.calls = n, 0
        self.where = ""

    def run(self, act: Callable[[], Any]) -> Any:
        sys.setprofile(self._look)
        try:
            return act()
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        self.calls += 1
        if self.calls == self.n + 1:
            self.where = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"
            raise KeyboardInterrupt


class AtTime:
    """After so many seconds, by a signal."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.where = seconds, "a signal"
        self._acts = False

    def run(self, act: Callable[[], Any]) -> Any:
        thread = threading.Thread(target=self._interrupt)
        before = signal.signal(signal.SIGINT, self._handle)
        self._acts = True
        try:
            thread.start()
            return act()
        finally:
            self._acts = False
            thread.join()
            signal.signal(signal.SIGINT, before)

    def _interrupt(self) -> None:
        time.sleep(self.seconds)
        os.kill(os.getpid(), signal.SIGINT)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._acts:
            raise KeyboardInterrupt


def _case(name: str, moment: AtTime | AtCall, expected: list[torch.Tensor]) -> str:
    action = ACTIONS[name]
    state = action.prepare()
    tensors, model, process = copy.deepcopy(state.tensors), _described(state), _process()
    original = flat(state.model(state.x))
    answer = "not reached"
    try:
        moment.run(lambda: action.act(state))
    except KeyboardInterrupt:
        answer = "interrupted"
    if _process() != process:
        changed = [key for key, value in _process().items() if value != process[key]]
        return f"changes the process: {', '.join(changed)} ({moment.where})"
    if not all(torch.equal(now, before) for now, before in zip(state.tensors, tensors)):
        return f"changes the caller's tensors ({moment.where})"
    if _described(state) != model:
        return f"changes the model ({moment.where})"
    if not are_close(flat(state.model(state.x)), original, 0):
        return f"changes what the model computes ({moment.where})"
    if not are_close(flat(action.value(state, action.act(state))), expected, action.tolerance):
        return f"the same again gives a wrong value ({moment.where})"
    return answer


def _described(state: Any) -> list[Any]:
    """All of the caller's model but the numbers."""
    found: list[Any] = [str(state.script.inlined_graph)] if hasattr(state, "script") else []
    for name, module in state.model.named_modules():
        found.append((name, type(module).__qualname__, module.training, sorted(module.__dict__)))
        found.append([len(module.__dict__[key]) for key in sorted(module.__dict__) if key.endswith("_hooks")])
    return found


def _process() -> dict[str, Any]:
    """What an action must not change in the process."""
    return {
        "grad mode": torch.is_grad_enabled(),
        "math mode": ipex.get_fp32_math_mode(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "threads": torch.get_num_threads(),
        "tracing": torch._C._get_tracing_state() is not None,
        "scripting": torch.jit.is_scripting(),
        "modes of Python": torch._C._len_torch_dispatch_stack(),
        "random numbers": torch.get_rng_state().tolist(),
        "optimizing executor": torch._C._get_graph_executor_optimize(),
        "inference mode": torch.is_inference_mode_enabled(),
    }
