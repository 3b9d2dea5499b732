"""The process forks before, between and during calls of other threads: the child computes by itself, and ends."""

from __future__ import annotations

import os
import random
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

import ipex
from faults.actions import are_close, flat, quietly, warm_python
from kinds_of_model import KINDS

MODELS = ("linear", "linears in a chain", "attention", "convolution", "convolution of pixels", "static int8")
SECONDS_OF_A_CHILD = 10
THREADS = 2
CALLS_THAT_COMPILE = 3  # the first is profiled, the second compiled, and its result run from the third on


class Kept:
    """A model that is optimised, and what it gives: that of one thread, or of the process that forks."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            self.model, self.x = KINDS[kind].make().eval(), KINDS[kind].x()
        self.module = KINDS[kind].optimize(self.model, self.x)
        self.prepared = ipex.quantization.prepare(self.model, self.x, ipex.quantization.Recipe(forced=True))
        self.expected = flat(self.model(self.x))
        self.tolerance = 5e-2 if "int8" in kind else 1e-4
        self.more = torch.cat([self.x, self.x])

    def call(self) -> None:
        self._check(self.module(self.x))

    def call_with_another_shape(self) -> None:
        self.module(self.more)

    def observe(self) -> None:
        self._check(self.prepared(self.x))

    def take_memory(self) -> None:
        with ipex.use_allocator():
            self._check(self.module(self.x))
            torch.empty(1 << 20)

    def look_at_memory(self) -> None:
        ipex.memory_stats()
        ipex.memory_snapshot()
        ipex.empty_cache()
        self.call()

    def make_a_pool(self) -> None:
        with ipex.StreamPool(self.module, streams=1, threads_per_stream=THREADS, pin=False) as pool:
            self._check(pool(self.x))

    def save_and_load(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ipex.aot_save(self.module, Path(folder) / "model.ipex")
            self._check(ipex.aot_load(Path(folder) / "model.ipex")(self.x))

    def optimize(self) -> None:
        self._check(KINDS[self.kind].optimize(self.model, self.x)(self.x))

    def _check(self, result: object) -> None:
        if not are_close(flat(result), self.expected, self.tolerance):
            raise ValueError("wrong value")


# torch's own locks do not survive a fork: that of a module's executor, which each call takes, and one that is held
# while a graph is compiled (a child waited for it in ProfilingRecord::instrumentGraph). So each thread calls a module
# of its own, and none compiles or loads one while another forks: the first calls of a module are over by then.
OF_THREADS: dict[str, Callable[[Kept], None]] = {
    "call": Kept.call,
    "call with another shape": Kept.call_with_another_shape,
    "observe": Kept.observe,
    "take memory": Kept.take_memory,
    "look at memory": Kept.look_at_memory,
    "call in a pool": Kept.call,
}
OF_CHILDREN: dict[str, Callable[[Kept], None]] = {
    **OF_THREADS,
    "make a pool": Kept.make_a_pool,
    "save and load": Kept.save_and_load,
    "optimize": Kept.optimize,
}
MOMENTS = ("before calls", "between calls", "during calls")


class Forks:
    """Cases of which each is what threads do, when the process forks, and what the child does."""

    good = ("right",)

    def __init__(self, seed: int, actions: str) -> None:
        self._seed = seed
        every = [(m, t, c) for m in MOMENTS for t in OF_THREADS for c in OF_CHILDREN]
        every = [each for each in every if each[0] != "before calls" or each[1] == "call"]
        self._all = [each for each in every if re.search(actions, _words(*each))]

    def prepare(self, cases: range) -> None:
        del cases
        warm_python()

    def drawn(self, index: int) -> tuple[str, str, str, random.Random]:
        draw = random.Random(f"forks {self._seed} {index}")
        return (*draw.choice(self._all), draw)

    def name_of(self, index: int) -> str:
        return _words(*self.drawn(index)[:3])

    def run(self, index: int) -> str:
        moment, of_threads, of_child, draw = self.drawn(index)
        quietly()  # one thread: OpenMP's team does not survive a fork
        own = Kept(draw.choice(MODELS))
        theirs = [] if moment == "before calls" else [Kept(draw.choice(MODELS)) for _ in range(2)]
        torch.set_num_threads(THREADS)
        if moment != "before calls":
            own.call()
        busy = Busy(theirs, of_threads) if moment == "during calls" else None
        if moment == "between calls":
            Busy(theirs, of_threads).end()
        try:
            time.sleep(draw.uniform(0, 0.02))
            for _ in range(5):
                if answer := _child(lambda: OF_CHILDREN[of_child](own)):
                    return f"{self.name_of(index)}: the child {answer}"
            own.call()
        finally:
            failed = busy.end() if busy else ""
        return f"{self.name_of(index)}: a thread of the parent: {failed}" if failed else "right"


class Busy:
    """Threads that do something until they are told to end."""

    def __init__(self, kept: list[Kept], name: str) -> None:
        self._is_over, self._failed, self._of_pool = False, "", kept[0] if kept else None
        self._pool = None
        if name == "call in a pool":
            self._pool = ipex.StreamPool(kept[0].module, streams=2, threads_per_stream=1, pin=False)
        compiled = [threading.Event() for _ in kept]
        self._threads = [threading.Thread(target=self._run, args=(each, name, e)) for each, e in zip(kept, compiled)]
        for thread in self._threads:
            thread.start()
        for each in compiled:
            each.wait()

    def _run(self, kept: Kept, name: str, is_compiled: threading.Event) -> None:
        torch.set_grad_enabled(False)
        calls = 0
        try:
            while not self._is_over:
                if self._pool:
                    self._pool(self._of_pool.x)
                else:
                    OF_THREADS[name](kept)
                calls += 1
                if calls == CALLS_THAT_COMPILE:
                    is_compiled.set()
        except Exception as error:
            self._failed = f"{type(error).__name__}: {' '.join(str(error).split())[-160:]}"
        finally:
            is_compiled.set()

    def end(self) -> str:
        self._is_over = True
        for thread in self._threads:
            thread.join()
        if self._pool:
            self._pool.close()
        return self._failed


def _child(act: Callable[[], None]) -> str:
    """Fork, let the child act, and return what was wrong."""
    if (child := os.fork()) == 0:
        signal.alarm(0)
        try:
            act()
            act()
            os._exit(0)
        except BaseException:
            os._exit(1)
    end = time.monotonic() + SECONDS_OF_A_CHILD
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            if os.WIFSIGNALED(status):
                return f"ends with {signal.Signals(os.WTERMSIG(status)).name}"
            return "raises, or gives a wrong value" if status else ""
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"


def _words(moment: str, of_threads: str, of_child: str) -> str:
    return f"fork {moment}, threads {of_threads}, child: {of_child}"
