"""Which modules are packed, and how."""

from __future__ import annotations

from torch import nn

from . import graph_ops  # noqa: F401  (registers them)
from .convolution import PackedConvolution, PackedTransposed
from .layer import PackedLayer
from .linear import PackedConv1D, PackedLinear
from .recurrent import PackedGRU, PackedLSTM

FAMILIES: dict[type[nn.Module], type[PackedLayer]] = {
    nn.Linear: PackedLinear,
    nn.Conv1d: PackedConvolution,
    nn.Conv2d: PackedConvolution,
    nn.Conv3d: PackedConvolution,
    nn.ConvTranspose1d: PackedTransposed,
    nn.ConvTranspose2d: PackedTransposed,
    nn.ConvTranspose3d: PackedTransposed,
    nn.LSTM: PackedLSTM,
    nn.GRU: PackedGRU,
}
# Classes of other packages, by name: nothing is imported for them.
_OF_OTHERS: dict[str, type[PackedLayer]] = {"transformers.pytorch_utils.Conv1D": PackedConv1D}
RECURRENT = (PackedLSTM, PackedGRU)

# A subclass that defines one of these may do something else than the class of torch's.
_BEHAVIOUR = {
    "__call__",
    "__delattr__",
    "__deepcopy__",
    "__getattr__",
    "__getattribute__",
    "__getstate__",
    "__reduce__",
    "__reduce_ex__",
    "__setattr__",
    "__setstate__",
    "__slots__",
    "_apply",
    "_call_impl",
    "_conv_forward",
    "_load_from_state_dict",
    "_parameters",
    "_save_to_state_dict",
    "bias",
    "forward",
    "weight",
}


def known_class_of(plain_class: type[nn.Module]) -> type[nn.Module] | None:
    """Return the class that this one is or derives from, of those that are packed."""
    return next((base for base in plain_class.__mro__ if _family(base) is not None), None)


def family_of(plain_class: type[nn.Module]) -> type[PackedLayer]:
    """Return what packs modules of this class."""
    base = known_class_of(plain_class)
    family = None if base is None else _family(base)
    assert family is not None
    return family


def _family(known: type) -> type[PackedLayer] | None:
    return FAMILIES.get(known) or _OF_OTHERS.get(f"{known.__module__}.{known.__qualname__}")


def changed_behaviour(plain_class: type[nn.Module]) -> str | None:
    """Return what a subclass does in its own way, that the packed layer would not, if anything."""
    base = known_class_of(plain_class)
    for between in plain_class.__mro__[: plain_class.__mro__.index(base)] if base else ():
        for name in sorted(_BEHAVIOUR & set(vars(between))):
            return f"{between.__name__}.{name}"
    return None
