"""The knobs of `ipex.optimize`: what each level sets, and which apply when."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from typing import Any

import torch

LEVELS = ("O0", "O1")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass
class Knobs:
    """What is switched on."""

    conv_bn_folding: bool
    linear_bn_folding: bool
    weights_prepack: bool
    replace_dropout_with_identity: bool
    optimize_lstm: bool
    split_master_weight_for_bf16: bool
    fuse_update_step: bool
    auto_kernel_selection: bool
    graph_mode: bool
    concat_linear: bool


# What O1 leaves off takes time when optimising, or ties the model to its sample.
_OFF_IN_O1 = {"auto_kernel_selection", "graph_mode", "concat_linear"}
_FOR_TRAINING = {"split_master_weight_for_bf16", "fuse_update_step"}
_FOR_INFERENCE = {
    "conv_bn_folding",
    "linear_bn_folding",
    "replace_dropout_with_identity",
    "optimize_lstm",
    "auto_kernel_selection",
    "graph_mode",
    "concat_linear",
}
_NEED_PREPACK = {"auto_kernel_selection", "concat_linear"}


def resolve(
    level: str, explicit: dict[str, bool | None], *, training: bool, has_sample: bool, stacklevel: int
) -> Knobs:
    """Return the level's settings with the explicit ones over them, and warn of those that don't apply."""
    if level not in LEVELS:
        raise ValueError(f"ipex.optimize: expected 'O0' or 'O1' in level, got {level!r}. Take 'O1'.")
    for name, value in explicit.items():
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"ipex.optimize: expected True, False or None in {name}, got {value!r}.")
    values = {f.name: level == "O1" and f.name not in _OFF_IN_O1 for f in fields(Knobs)}
    values.update({name: value for name, value in explicit.items() if value is not None})
    out_of_place = _FOR_INFERENCE if training else _FOR_TRAINING
    for name in sorted(out_of_place):
        if explicit.get(name):
            when = (
                "inference: call model.eval() and leave the optimizer out"
                if training
                else "training: pass an optimizer"
            )
            _warn(f"{name} is ignored. It is for {when}.", stacklevel)
        values[name] = False
    if not values["weights_prepack"]:
        for name in sorted(_NEED_PREPACK):
            if explicit.get(name):
                _warn(f"{name} is ignored. It needs weights_prepack=True.", stacklevel)
            values[name] = False
        if has_sample and not values["graph_mode"]:
            _warn("sample_input is ignored. It needs weights_prepack=True or graph_mode=True.", stacklevel)
    if values["auto_kernel_selection"] and not has_sample:
        _warn("auto_kernel_selection is ignored. It times the shapes of a sample: pass sample_input.", stacklevel)
        values["auto_kernel_selection"] = False
    return Knobs(**values)


def check_dtype(dtype: Any) -> None:
    """Raise for a dtype that is not offered."""
    if dtype is None:
        return
    if not isinstance(dtype, torch.dtype):
        is_text = isinstance(dtype, str)
        raise TypeError(
            "ipex.optimize: expected a torch.dtype or None in dtype, got "
            f"{repr(dtype) if is_text else type(dtype).__name__}. "
            f"{'Take torch.bfloat16.' if is_text else 'Example inputs go into sample_input.'}"
        )
    if dtype not in DTYPES:
        raise ValueError(
            f"ipex.optimize: expected torch.float32, torch.bfloat16 or torch.float16 in dtype, got {dtype}."
        )


def _warn(message: str, stacklevel: int) -> None:
    warnings.warn(f"ipex.optimize: {message}", stacklevel=stacklevel + 2)
