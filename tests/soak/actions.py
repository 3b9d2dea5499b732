"""What a long run does: each action is a function that takes the session, and says what was wrong, or ""."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ipex
from children import Child
from soak import models
from soak.models import GRADIENT_TOLERANCE, TOLERANCE, Subject, build, difference

MOST_MODELS = 4
CALLERS, CALLS = 3, 6


class Session:
    """Models that are there, and numbers to draw what comes next."""

    def __init__(self, folder: Path, kinds: list[str], is_stock: bool, plants: list[str]) -> None:
        self.folder = folder
        self.kinds = kinds
        self.is_stock = is_stock
        self.plants = plants
        self.planted: list[Any] = []
        self.subjects: list[Subject] = []
        self.draw = random.Random()

    def any_subject(self) -> Subject:
        """Draw one of the models; make one where there is none."""
        return self.draw.choice(self.subjects) if self.subjects else self.new_subject()

    def new_subject(self) -> Subject:
        """Draw a kind, make a model of it, and let go of one where there are too many.

        A child traces: torch keeps the types of every module that it has traced, and of what is made of such a module,
        for the life of the process. What comes from a file it lets go of.
        """
        if len(self.subjects) == MOST_MODELS:
            self.subjects.pop(self.draw.randrange(MOST_MODELS))
        subject = build(self.draw.choice(self.kinds))
        script, optimized = self.folder / "script.pt", self.folder / "optimized.pt"

        def trace() -> str:
            torch.jit.trace(subject.eager, subject.example, check_trace=False).save(script)
            if not self.is_stock:
                models.optimize(subject).save(optimized)
            return "good"

        if wrong := in_child(trace):
            raise RuntimeError(f"{subject.name}, traced in a child: {wrong}")
        if self.is_stock:
            subject.module = torch.jit.freeze(torch.jit.load(script))
        elif "static" in subject.name or self.draw.random() < 0.5:
            subject.module = ipex.load(optimized)
        else:
            subject.module = models.optimize_script(subject, torch.jit.load(script))
        self.subjects.append(subject)
        return subject

    def compare(self, subject: Subject, x: Tensor, actual: Tensor) -> str:
        """Compare a result with eager's."""
        with torch.no_grad():
            expected = subject.eager(x.detach())
        if "wrong" in self.plants and self.draw.random() < 0.1:
            actual = actual + expected.abs().max() / 4
        return difference(actual, expected, TOLERANCE[subject.precision])


def in_child(work: Callable[[], str]) -> str:
    """Let a child do it that has one thread: OpenMP's threads, which aten's ops want, are not there in a child.

    Returns how the child ended, or what it answered; "" where it answered "good".
    """

    def run(_: int) -> str:
        torch.set_num_threads(1)
        return work()

    answers, how, _ = Child(run, [0]).end()
    answer = how or answers.get(0, "no answer")
    return "" if answer == "good" else answer


def optimize(session: Session) -> str:
    """Optimise a model, and call it."""
    session.new_subject()
    return call_under_inference_mode(session)


def trace_here(session: Session) -> str:
    """Trace and optimise in this process, which keeps what torch.jit.trace leaves behind: not one of those drawn."""
    subject = models.build(session.draw.choice(session.kinds))
    if session.is_stock:
        subject.module = torch.jit.trace(subject.eager, subject.example, check_trace=False)
    else:
        subject.module = models.optimize(subject)
    session.subjects = [subject]
    return call_under_inference_mode(session)


def call_under_inference_mode(session: Session) -> str:
    """Call with a few sizes."""
    subject = session.any_subject()
    with torch.inference_mode():
        for _ in range(CALLS):
            x = subject.input(session.draw)
            if wrong := session.compare(subject, x, subject.module(x)):
                return f"{subject.name}: {wrong}"
    return ""


def call_under_grad_mode(session: Session) -> str:
    """Call with an input that wants a gradient, and compare that too where it is near eager's."""
    subject = session.any_subject()
    x = subject.input(session.draw)
    with torch.enable_grad():
        y = subject.module(x.requires_grad_(x.is_floating_point()))
        wrong = session.compare(subject, x, y)
        if not wrong and x.requires_grad and subject.has_near_gradients:
            expected = torch.autograd.grad(subject.eager(x).square().sum(), x)[0]
            actual = torch.autograd.grad(y.square().sum(), x)[0]
            wrong = difference(actual, expected, GRADIENT_TOLERANCE)
    return f"{subject.name}: {wrong}" if wrong else ""


def call_from_threads(session: Session) -> str:
    """Call one model from several threads at once, each with sizes of its own."""
    subject = session.any_subject()
    inputs = [[subject.input(session.draw) for _ in range(CALLS)] for _ in range(CALLERS)]
    ready = threading.Barrier(CALLERS)

    def caller(own: list[Tensor]) -> list[Tensor]:
        ready.wait()
        with torch.inference_mode():
            return [subject.module(x) for x in own]

    with ThreadPoolExecutor(CALLERS) as pool:
        results = list(pool.map(caller, inputs))
    wrong = [session.compare(subject, x, y) for xs, ys in zip(inputs, results) for x, y in zip(xs, ys)]
    return next((f"{subject.name}: {text}" for text in wrong if text), "")


def call_through_streams(session: Session) -> str:
    """Call through a StreamPool, and close it."""
    subject = session.any_subject()
    inputs = [subject.input(session.draw) for _ in range(CALLS)]
    options = {"streams": session.draw.randint(1, 3), "threads_per_stream": session.draw.randint(1, 2)}
    with ipex.StreamPool(subject.module, pin=session.draw.random() < 0.5, **options) as pool:
        wrong = [session.compare(subject, x, y) for x, y in zip(inputs, pool.map(inputs))]
    return next((f"{subject.name}: {text}" for text in wrong if text), "")


def load(session: Session) -> str:
    """Save a model, and go on with what is loaded."""
    subject, path = session.any_subject(), session.folder / "model.pt"
    subject.module.save(path)
    subject.module = session.draw.choice([torch.jit.load, ipex.load])(path)
    if session.draw.random() < 0.5:
        path.unlink()
    return call_under_inference_mode(session)


def load_ahead_of_time(session: Session) -> str:
    """Save a model with packed weights, and go on with what is loaded."""
    subject, path = session.any_subject(), session.folder / "model.ipex"
    examples = subject.example if session.draw.random() < 0.5 else None
    ipex.aot_save(subject.module, path, example_inputs=examples)
    subject.module = ipex.aot_load(path, check_at_load=session.draw.random() < 0.5)
    if session.draw.random() < 0.5:
        path.unlink()
    return call_under_inference_mode(session)


def change_thread_count(session: Session) -> str:
    torch.set_num_threads(session.draw.randint(1, 4))
    return ""


def change_math_mode(session: Session) -> str:
    ipex.set_fp32_math_mode(session.draw.choice([ipex.FP32MathMode.FP32, ipex.FP32MathMode.BF32]))
    return call_under_inference_mode(session)


def ask_memory(session: Session) -> str:
    """Read the figures, give back what is kept, and call with ipex's allocator."""
    stats = ipex.memory_stats()
    if stats["allocated_bytes.all.current"] > stats["reserved_bytes.all.current"]:
        return "more is allocated than was reserved"
    ipex.memory_summary(abbreviated=session.draw.random() < 0.5)
    ipex.memory_snapshot()
    ipex.reset_peak_memory_stats()
    ipex.empty_cache()
    with ipex.use_allocator():
        wrong = call_under_inference_mode(session)
    ipex.empty_cache()
    return wrong


def explain(session: Session) -> str:
    str(ipex.explain(session.any_subject().module))
    return ""


def drop(session: Session) -> str:
    if session.subjects:
        session.subjects.pop(session.draw.randrange(len(session.subjects)))
    return ""


def fork(session: Session) -> str:
    """Let a child call a model."""
    subject = session.any_subject()
    x = subject.input(session.draw)

    def call() -> str:
        if "child" in session.plants:
            os.abort()
        with torch.inference_mode():
            return session.compare(subject, x, subject.module(x)) or "good"

    wrong = in_child(call)
    return f"{subject.name}: {wrong}" if wrong else ""


ACTIONS: dict[str, Callable[[Session], str]] = {
    action.__name__: action
    for action in (
        optimize,
        load,
        load_ahead_of_time,
        call_under_inference_mode,
        call_under_grad_mode,
        call_from_threads,
        call_through_streams,
        change_thread_count,
        change_math_mode,
        ask_memory,
        explain,
        fork,
        drop,
    )
}
ALSO = {"trace_here": trace_here}  # where they are asked for
# Which ones stock TorchScript has too.
OF_STOCK = [optimize, load, call_under_inference_mode, call_under_grad_mode, call_from_threads, fork, drop]
