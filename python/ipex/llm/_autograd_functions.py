"""Autograd functions of Python, as Bloom has one: a trace would call Python for each, and no file could hold it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_Function = torch.autograd.Function
_usual = _Function.__dict__["apply"]
_lock = threading.Lock()
_open = 0  # in how many threads
_here = threading.local()


class _Context:
    """What a forward gets where nobody goes backward."""

    needs_input_grad = ()

    def _nothing(self, *_: Any) -> None:
        pass

    save_for_backward = save_for_forward = mark_dirty = mark_non_differentiable = set_materialize_grads = _nothing


def _apply(kind: Any, *args: Any, **kwargs: Any) -> Any:
    if not getattr(_here, "is_open", False) or torch.is_grad_enabled():
        return _usual.__get__(None, kind)(*args, **kwargs)
    has_context = kind.setup_context is _Function.setup_context  # else the forward does without
    return kind.forward(*([_Context()] if has_context else []), *args, **kwargs)


@contextmanager
def as_their_ops() -> Iterator[None]:
    """Inside, in this thread and without gradients, a function of Python is the ops of its forward."""
    global _open
    with _lock:
        _open += 1
        _Function.apply = classmethod(_apply)  # type: ignore[assignment]
    before, _here.is_open = getattr(_here, "is_open", False), True
    try:
        yield
    finally:
        _here.is_open = before
        with _lock:
            _open -= 1
            if _open == 0:
                _Function.apply = _usual  # type: ignore[method-assign]
