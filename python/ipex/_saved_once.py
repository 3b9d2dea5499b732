"""A state_dict has one tensor for parameters that are tied, where its values are made for it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor


class _Call(threading.local):
    """A state_dict that is being made, and under which names it has which parameters."""

    def __init__(self) -> None:
        self.made: weakref.ref[Any] | None = None
        self.known: list[tuple[weakref.ref[Tensor], str]] = []


_call = _Call()


def save_once(state_dict: Any, name: str, parameter: Tensor, value_of: Callable[[Any], Tensor]) -> None:
    """Save the value of a parameter under this name: the same tensor that the state_dict has of it already, if any."""
    if _call.made is None or _call.made() is not state_dict:
        _call.made, _call.known = _reference(state_dict), []
    for known, other in _call.known:
        if known() is parameter and other != name and other in state_dict:
            state_dict[name] = state_dict[other]
            return
    state_dict[name] = value_of(parameter)
    _call.known.append((weakref.ref(parameter), name))


def _reference(state_dict: Any) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(state_dict)
    except TypeError:  # a plain dict, of the caller's
        return None
