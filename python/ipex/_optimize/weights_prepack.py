"""weights_prepack: convolutions and linears compute with weights in the layout of the kernels."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from ..quantization import WeightOnlyLinear
from .data_flow import DataFlow
from .notes import Notes
from .packed.families import RECURRENT, changed_behaviour, family_of, known_class_of
from .packed.layer import PackedLayer, pack_module
from .packed.weight_only import pack_weight_only

KNOB = "weights_prepack"


def prepack_weights(
    model: nn.Module, flow: DataFlow, notes: Notes, *, casts: bool, recurrent: bool = False, knob: str = KNOB
) -> None:
    """Pack every layer that can be packed: those of `optimize_lstm` where `recurrent`, else all others."""
    readers = _readers(model)
    for name, module in list(model.named_modules()):
        if type(module) is WeightOnlyLinear and not recurrent:
            pack_weight_only(module)
            notes.applied(knob, name or "the model", "packed")
            continue
        base = known_class_of(type(module))
        if base is None or isinstance(module, PackedLayer) or (family_of(base) in RECURRENT) != recurrent:
            continue
        where = name or "the model"
        reason = why_not(module, readers) or (
            "other code reads its parameters" if flow.reads_parameters_of(name) else None
        )
        if reason is not None:
            notes.declined(knob, where, reason)
            continue
        try:
            pack_module(module, family_of(base), casts=casts)
        except RuntimeError as error:
            notes.declined(knob, where, str(error).splitlines()[0])
        else:
            notes.applied(knob, where, "packed")


def why_not(module: nn.Module, readers: dict[int, set[str]]) -> str | None:
    """Return why this layer stays as it is, if there is a reason."""
    own = changed_behaviour(type(module))
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return "the attention around it reads its weight"
    if own is not None:
        return f"{own} may do something else than the class it derives from"
    if torch.nn.utils.parametrize.is_parametrized(module):
        return "its parameters are computed at every call"
    if "forward" in module.__dict__:
        return "it has a forward of its own"
    if getattr(module, "padding_mode", "zeros") != "zeros":
        return f"its padding_mode is {module.padding_mode}"
    parameters = [p for p in module._parameters.values() if p is not None]
    if "weight" in dict(module.named_buffers(recurse=False)) or not parameters:
        return "its weight is no parameter"
    if any(not isinstance(p, nn.Parameter) or type(p) not in (nn.Parameter, torch.Tensor) for p in parameters):
        return "a parameter is of a class of its own"
    if any(p.device.type != "cpu" for p in parameters):
        return "packed weights are for CPUs"
    dtypes = {p.dtype for p in parameters}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.bfloat16, torch.float16}:
        return f"its parameters are {', '.join(sorted(str(d).removeprefix('torch.') for d in dtypes))}"
    if family_of(type(module)) in RECURRENT and dtypes != {torch.float32}:
        (dtype,) = dtypes
        return f"its weights are {str(dtype).removeprefix('torch.')}, and packed ones compute in float32"
    if any(p.numel() == 0 for p in parameters):
        return "a parameter is empty"
    others = set().union(*(readers.get(id(p), set()) for p in parameters))
    if others:
        return f"{sorted(others)[0]} reads its weight too"
    return None


def _readers(model: nn.Module) -> dict[int, set[str]]:
    """Which modules that are not packed hold each parameter, by its id."""
    readers: dict[int, set[str]] = {}
    for name, module in model.named_modules():
        if known_class_of(type(module)) is None:
            for parameter in module._parameters.values():
                if parameter is not None:
                    readers.setdefault(id(parameter), set()).add(name or "the model")
    return readers
