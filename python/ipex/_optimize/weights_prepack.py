"""weights_prepack: convolutions and linears compute with weights in the layout of the kernels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from ..quantization import WeightOnlyLinear
from .data_flow import DataFlow
from .notes import Notes
from .packed.embedding import share_packed
from .packed.families import RECURRENT, changed_behaviour, family_of, known_class_of
from .packed.layer import PackedLayer, pack_module
from .packed.linear import PackedLinear
from .shared_weights import holders_of, leave_shared

KNOB = "weights_prepack"


def prepack_weights(
    model: nn.Module, flow: DataFlow, notes: Notes, *, casts: bool, recurrent: bool = False, knob: str = KNOB
) -> None:
    """Pack every layer that can be packed: those of `optimize_lstm` where `recurrent`, else all others."""
    layers: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if isinstance(module, WeightOnlyLinear) and not recurrent:
            notes.applied(knob, name or "the model", "packed, as it was given")
            continue
        base = known_class_of(type(module))
        if base is None or isinstance(module, PackedLayer) or (family_of(base) in RECURRENT) != recurrent:
            continue
        reason = why_not(module) or ("other code reads its parameters" if flow.reads_parameters_of(name) else None)
        if reason is None:
            layers[name] = module
        else:
            notes.declined(knob, name or "the model", reason)
    embeddings = _embeddings(model, layers, flow)
    shared = leave_shared({**layers, **embeddings}, holders_of(model), _parameters)
    for name, module in layers.items():
        where = name or "the model"
        if name in shared:
            notes.declined(knob, where, f"{shared[name]} shares a parameter with it")
            continue
        weight = id(module._parameters.get("weight"))
        try:
            pack_module(module, family_of(type(module)), casts=casts)
        except RuntimeError as error:
            notes.declined(knob, where, str(error).splitlines()[0])
            continue
        notes.applied(knob, where, "packed")
        for reader, embedding in embeddings.items():
            if reader not in shared and id(embedding.weight) == weight:
                share_packed(embedding, casts=casts)
                notes.applied(knob, reader, _read_from(embedding.weight, where))


def _embeddings(model: nn.Module, layers: dict[str, nn.Module], flow: DataFlow) -> dict[str, nn.Embedding]:
    """Return the embeddings that can read rows of what one of these layers packs."""
    families: dict[int, set[type[PackedLayer]]] = {}
    for layer in layers.values():
        families.setdefault(id(layer._parameters.get("weight")), set()).add(family_of(type(layer)))
    return {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Embedding
        and families.get(id(module._parameters.get("weight"))) == {PackedLinear}
        and module.max_norm is None  # it would write to the weight
        and "forward" not in module.__dict__
        and not flow.reads_parameters_of(name)
    }


def _parameters(layer: nn.Module) -> list[nn.Parameter]:
    return [p for p in layer._parameters.values() if p is not None]


def _read_from(weight: Tensor, linear: str) -> str:
    if weight.dtype == torch.float32:
        return f"reads rows of what {linear} has packed"
    return f"reads rows beside what {linear} has packed, which are {weight.nbytes / 1e6:.3g} MB"


def why_not(module: nn.Module) -> str | None:
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
    parameters = _parameters(module)
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
    return None
