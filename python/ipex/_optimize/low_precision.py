"""dtype: the weights of the layers that gain by it are cast.

Convolutions, transposed ones and linears; at inference also embeddings and LSTMs. Everything else keeps its dtype. Run
such a model under autocast of the dtype. What is packed besides runs without it too: inputs are cast, and results back.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from .notes import Notes
from .packed.families import changed_behaviour, torch_class_of

KNOB = "dtype"


def cast_weights(model: nn.Module, dtype: torch.dtype, notes: Notes) -> None:
    """Cast the parameters of the layers that IPEX documents."""
    for name, module in model.named_modules():
        base = torch_class_of(type(module))
        if base is nn.GRU or (base is None and type(module) is not nn.Embedding):
            continue
        tensors = [t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None]
        if all(t.dtype == dtype for t in tensors):
            continue
        if any(t.dtype != torch.float32 for t in tensors):
            notes.declined(KNOB, name, "it is not float32")
            continue
        reason = _why_not(module)
        if reason is not None:
            notes.declined(KNOB, name, reason)
            continue
        infinite = _overflows(module, dtype)
        if infinite:
            notes.declined(KNOB, name, f"its {infinite} overflows in {str(dtype).removeprefix('torch.')}")
            continue
        module._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)
        notes.applied(KNOB, name, f"cast to {str(dtype).removeprefix('torch.')}")


def _why_not(module: nn.Module) -> str | None:
    own = changed_behaviour(type(module))
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return "the attention around it reads its weight"
    if own is not None and torch_class_of(type(module)) is not None:
        return f"{own} may do something else than torch's"
    if torch.nn.utils.parametrize.is_parametrized(module) or module._forward_pre_hooks:
        return "its parameters may be computed at every call"
    return None


def _overflows(module: nn.Module, dtype: torch.dtype) -> str | None:
    for name, parameter in module.named_parameters(recurse=False):
        finite = parameter[torch.isfinite(parameter)]
        if finite.numel() and finite.abs().max().item() > torch.finfo(dtype).max:
            return name
    return None
