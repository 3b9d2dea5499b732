"""dtype: the weights of the layers that gain by it are cast.

Convolutions, transposed ones and linears; at inference also embeddings and LSTMs. Everything else keeps its dtype. Run
such a model under autocast of the dtype. Calls without it work too: a layer casts its inputs, and its results back, a
packed one by itself, any other as in `casting.py`. `state_dict` gives float32 as before, of rounded values.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from .._saved_once import save_once
from .._torch_internals import has_lstm_of
from ..optim.prepare import LOW
from .data_flow import DataFlow
from .notes import Notes
from .packed.families import changed_behaviour, known_class_of
from .shared_weights import holders_of, leave_shared, other_holder

KNOB = "dtype"


def cast_weights(model: nn.Module, dtype: torch.dtype, flow: DataFlow, notes: Notes) -> list[nn.Module]:
    """Cast the parameters of the layers that IPEX documents. Return these layers."""
    layers = _layers(model, dtype, flow, notes)
    holders = holders_of(model)
    for name, other in leave_shared(layers, holders, _weights).items():
        notes.declined(KNOB, name or "the model", f"{other} reads its weight too")
    for name, layer in layers.items():
        for parameter in layer._parameters.values():
            if parameter is not None and other_holder(parameter, layers, holders) is None:
                _cast(parameter, dtype)
        for own, buffer in layer._buffers.items():  # of a folded batch_norm
            if buffer is not None and buffer.is_floating_point():
                layer._buffers[own] = buffer.to(dtype)
        layer.register_state_dict_post_hook(_save_in_float32)
        notes.applied(KNOB, name, f"cast to {str(dtype).removeprefix('torch.')}")
    return list(layers.values())


def _layers(model: nn.Module, dtype: torch.dtype, flow: DataFlow, notes: Notes) -> dict[str, nn.Module]:
    """Return the layers that can be cast, by name."""
    found = {}
    for name, module in model.named_modules():
        base = known_class_of(type(module))
        if base is nn.GRU or (base is None and type(module) is not nn.Embedding):
            continue
        tensors = [t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None]
        if all(t.dtype == dtype for t in tensors):
            continue
        if any(t.dtype != torch.float32 for t in tensors):
            notes.declined(KNOB, name, "it is not float32")
            continue
        reason = _why_not(module, dtype) or (
            "other code reads its parameters" if flow.reads_parameters_of(name) else None
        )
        if reason is not None:
            notes.declined(KNOB, name, reason)
            continue
        infinite = _overflows(module, dtype)
        if infinite:
            notes.declined(KNOB, name, f"its {infinite} overflows in {str(dtype).removeprefix('torch.')}")
            continue
        found[name] = module
    return found


def _weights(layer: nn.Module) -> list[nn.Parameter]:
    """Return what can't stay as it is, as a bias can."""
    return [p for name, p in layer._parameters.items() if p is not None and name != "bias"]


@torch.no_grad()
def _cast(parameter: nn.Parameter, dtype: torch.dtype) -> None:
    gradient, parameter.grad = parameter.grad, None  # it has the parameter's dtype
    parameter.data = parameter.data.to(dtype)
    parameter.grad = None if gradient is None else gradient.to(dtype)


# A function of the file, so that a module with this hook can be copied and pickled.
def _save_in_float32(module: nn.Module, state_dict: dict[str, Any], prefix: str, _metadata: Any) -> None:
    for name, parameter in module.__dict__["_parameters"].items():
        saved = state_dict.get(prefix + name)
        is_asked_for_itself = isinstance(saved, nn.Parameter)  # by keep_vars
        if saved is not None and saved.dtype in LOW and not is_asked_for_itself:
            save_once(state_dict, prefix + name, parameter, partial(_in_float32, saved))


def _in_float32(saved: Tensor, _parameter: Tensor) -> Tensor:
    return saved.float()


def _why_not(module: nn.Module, dtype: torch.dtype) -> str | None:
    if isinstance(module, nn.LSTM) and not has_lstm_of(dtype):
        return f"torch has no LSTM of {str(dtype).removeprefix('torch.')} on this CPU"
    own = changed_behaviour(type(module))
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return "the attention around it reads its weight"
    if own is not None and known_class_of(type(module)) is not None:
        return f"{own} may do something else than the class it derives from"
    if torch.nn.utils.parametrize.is_parametrized(module) or module._forward_pre_hooks:
        return "its parameters may be computed at every call"
    return None


def _overflows(module: nn.Module, dtype: torch.dtype) -> str | None:
    for name, parameter in module.named_parameters(recurse=False):
        finite = parameter[torch.isfinite(parameter)]
        if finite.numel() and finite.abs().max().item() > torch.finfo(dtype).max:
            return name
    return None
