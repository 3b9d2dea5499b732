"""From a model to one with FP8 linears."""

from __future__ import annotations

import copy
from itertools import chain
from typing import TypeVar, overload

import torch
from torch import nn

from ._linear import FP8Linear
from ._scales import TensorScales

Model = TypeVar("Model", bound=nn.Module)
Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)


@overload
def prepare_fp8(model: Model, optimizer: None = None) -> Model: ...


@overload
def prepare_fp8(model: Model, optimizer: Optimizer) -> tuple[Model, Optimizer]: ...


def prepare_fp8(model: Model, optimizer: Optimizer | None = None) -> Model | tuple[Model, Optimizer]:
    """Return a copy of `model` whose linears compute on 8-bit floats in regions of `fp8_autocast`.

    The copy has the model's parameters and buffers themselves. So an optimizer needs no change, and is returned as it
    is. Modules that are exactly `nn.Linear` are taken, with their hooks. `nn.MultiheadAttention` stays in floats, as it
    does not call its linears.

    >>> from ipex.quantization import fp8
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    >>> prepared = fp8.prepare_fp8(model)
    >>> with fp8.fp8_autocast(enabled=True):
    ...     y = prepared(torch.randn(16, 64))
    >>> prepared[0].fp8_scales.updates  # of input, weight and gradient
    tensor([1, 1, 0])
    """
    if isinstance(model, torch.jit.ScriptModule) or not isinstance(model, nn.Module):
        raise TypeError(
            f"ipex.quantization.fp8.prepare_fp8: expected an nn.Module, got {type(model).__name__}. "
            "Prepare the model before it is traced or scripted."
        )
    shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    prepared = copy.deepcopy(model, shared)  # its memo: these count as copied
    for module in prepared.modules():
        if type(module) is nn.Linear:
            module.__class__ = FP8Linear
            assert isinstance(module, FP8Linear)
            module.fp8_scales = TensorScales()
        _call_linears(module)
    if not any(isinstance(module, FP8Linear) for module in prepared.modules()):
        raise ValueError(
            "ipex.quantization.fp8.prepare_fp8: expected a model with an nn.Linear, got none. "
            "Prepare the model before ipex.optimize."
        )
    return prepared if optimizer is None else (prepared, optimizer)


def _call_linears(module: nn.Module) -> None:
    """In eval mode torch's encoder layers read the weights of their linears and never call them, unless told so."""
    if isinstance(module, nn.TransformerEncoderLayer):
        module.activation_relu_or_gelu = 0
    if isinstance(module, nn.TransformerEncoder):
        module.use_nested_tensor = False
