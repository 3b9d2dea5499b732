"""auto_kernel_selection: each packed layer is timed against torch's own kernel on the shapes of the sample.

Where torch's is faster the layer is left to it. Choices are remembered by layer, shapes, dtype and number of threads,
and can be carried to another process. While a layer is timed, its weight is held twice; afterwards once.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from .notes import Notes
from .packed.layer import OneInput, unpack_module

KNOB = "auto_kernel_selection"
_ROUNDS = 7
_ROUND_SECONDS = 0.002
# A gain smaller than this is not told from chance.
_LEAST_GAIN = 1.03

_choices: dict[str, str] = {}


def kernel_choices() -> dict[str, str]:
    """Return what auto_kernel_selection has chosen in this process, "packed" or "aten" by layer. It goes into JSON."""
    return dict(_choices)


def use_kernel_choices(choices: dict[str, str]) -> None:
    """Take these choices, of `kernel_choices` in another process, without timing those layers again."""
    for key, choice in choices.items():
        if choice not in ("packed", "aten"):
            raise ValueError(f"ipex.use_kernel_choices: expected 'packed' or 'aten' for {key!r}, got {choice!r}.")
    _choices.update(choices)


def select_kernels(model: nn.Module, inputs: dict[nn.Module, list[Tensor]], notes: Notes) -> None:
    """Keep the faster kernel for each packed layer that the sample reached."""
    for name, module in model.named_modules():
        if not isinstance(module, OneInput) or module not in inputs:
            continue
        where = name or "the model"
        key = _key(module, inputs[module])
        if key in _choices:
            choice, reason = _choices[key], f"{_choices[key]}, as chosen before"
        else:
            choice, reason = _faster(module, inputs[module])
            _choices[key] = choice
        if choice == "aten":
            unpack_module(module)
        notes.applied(KNOB, where, reason)


def _faster(module: OneInput, inputs: list[Tensor]) -> tuple[str, str]:
    plain = module.as_plain_module()
    packed_time = aten_time = 0.0
    for x in inputs:
        packed_best, aten_best = _best_times(module, plain, x)
        packed_time += packed_best
        aten_time += aten_best
    choice = "aten" if packed_time > aten_time * _LEAST_GAIN else "packed"
    return choice, f"{choice}: packed takes {packed_time * 1e6:.0f} us, aten {aten_time * 1e6:.0f} us"


@torch.no_grad()
def _best_times(first: nn.Module, second: nn.Module, x: Tensor) -> tuple[float, float]:
    """The shortest time of a call of each, in turn, so that both see the same machine."""
    best = [float("inf"), float("inf")]
    for module in (first, second):
        module(x)
    for _ in range(_ROUNDS):
        for i, module in enumerate((first, second)):
            calls, begin = 0, time.perf_counter()
            while (now := time.perf_counter()) - begin < _ROUND_SECONDS or not calls:
                module(x)
                calls += 1
            best[i] = min(best[i], (time.perf_counter() - begin) / calls)
            del now
    return best[0], best[1]


def _key(module: OneInput, inputs: list[Tensor]) -> str:
    shapes = ", ".join(sorted(f"{list(x.shape)}{list(x.stride())}" for x in inputs))
    kind: Any = type(module).plain_class.__name__
    return f"{kind}({module.extra_repr()}) on {shapes}, {module._ipex_dtype}, {torch.get_num_threads()} threads"
