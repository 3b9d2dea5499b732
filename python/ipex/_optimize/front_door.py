"""`ipex.optimize`: the order in which the knobs are turned."""

from __future__ import annotations

import copy
import warnings
from typing import Any, TypeVar, overload

import torch
from torch import nn

from .._exported import is_exported
from .._inputs import arguments
from .._jit_optimize import jit_optimize
from .._script_module import model_of
from ..optim.masters import master_of
from ..optim.prepare import LOW
from ..optim.prepare import prepare as prepare_optimizer
from .auto_kernel_selection import select_kernels
from .casting import let_layers_cast
from .channels_last import is_auto_channels_last_enabled, to_channels_last
from .concat_linear import concat_linears
from .conv_bn_folding import fold_into_convolutions
from .data_flow import DataFlow
from .graph_mode import run_as_graph
from .knobs import Knobs, check_dtype, resolve
from .linear_bn_folding import fold_into_linears
from .low_precision import cast_weights
from .notes import Notes
from .optimize_lstm import optimize_recurrent_layers
from .packed.layer import OneInput
from .replace_dropout_with_identity import replace_dropout
from .sample_input import shapes_seen, warm_up
from .weights_prepack import prepack_weights
from .weights_prepack_in_training import end_training, prepack_for_training

Model = TypeVar("Model", bound=nn.Module)
Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)
REPORT = "_ipex_report"  # the attribute of an optimised module that `explain` reads


@overload
def optimize(
    model: Model,
    dtype: torch.dtype | None = ...,
    optimizer: None = ...,
    level: str = ...,
    inplace: bool = ...,
    conv_bn_folding: bool | None = ...,
    linear_bn_folding: bool | None = ...,
    weights_prepack: bool | None = ...,
    replace_dropout_with_identity: bool | None = ...,
    optimize_lstm: bool | None = ...,
    split_master_weight_for_bf16: bool | None = ...,
    fuse_update_step: bool | None = ...,
    auto_kernel_selection: bool | None = ...,
    sample_input: Any = ...,
    graph_mode: bool | None = ...,
    concat_linear: bool | None = ...,
) -> Model: ...
@overload
def optimize(
    model: Model,
    dtype: torch.dtype | None = ...,
    optimizer: Optimizer = ...,
    level: str = ...,
    inplace: bool = ...,
    conv_bn_folding: bool | None = ...,
    linear_bn_folding: bool | None = ...,
    weights_prepack: bool | None = ...,
    replace_dropout_with_identity: bool | None = ...,
    optimize_lstm: bool | None = ...,
    split_master_weight_for_bf16: bool | None = ...,
    fuse_update_step: bool | None = ...,
    auto_kernel_selection: bool | None = ...,
    sample_input: Any = ...,
    graph_mode: bool | None = ...,
    concat_linear: bool | None = ...,
) -> tuple[Model, Optimizer]: ...
def optimize(
    model: nn.Module,
    dtype: torch.dtype | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    level: str = "O1",
    inplace: bool = False,
    conv_bn_folding: bool | None = None,
    linear_bn_folding: bool | None = None,
    weights_prepack: bool | None = None,
    replace_dropout_with_identity: bool | None = None,
    optimize_lstm: bool | None = None,
    split_master_weight_for_bf16: bool | None = None,
    fuse_update_step: bool | None = None,
    auto_kernel_selection: bool | None = None,
    sample_input: Any = None,
    graph_mode: bool | None = None,
    concat_linear: bool | None = None,
) -> nn.Module | tuple[nn.Module, torch.optim.Optimizer]:
    """Return the model, faster: the same class, names and results. With an optimizer, return both.

    In eval mode: batch_norm is folded into the layer before it, dropout is left out, and convolutions, linears, LSTM
    and GRU compute with packed weights. In training mode pass the optimizer. The model stays an nn.Module with its
    class, attributes, hooks and `state_dict`; copy, pickle, trace or compile it as before. Its packed weights want no
    gradients; `requires_grad_()` gives them back, and the layer then computes as before.

    `level` "O0" changes nothing but what a knob asks for; "O1" sets the knobs for inference and training, without
    `auto_kernel_selection`, `graph_mode` and `concat_linear`. A knob that is True or False wins over the level.

    `dtype`, torch.bfloat16 or torch.float16, casts the weights of convolutions and linears, at inference those of
    embeddings and LSTMs too. Run the model under autocast of that dtype, or without: layers cast what they are given,
    and give it back in its dtype. `inplace=True` changes the model itself and holds no weight twice; without it the
    model given is not changed. `sample_input` is what the model will be called with: a tensor, a tuple or list of
    arguments, or a mapping of keyword arguments. `auto_kernel_selection` times each layer on it and keeps the fastest
    kernel; `graph_mode` traces the model with it.

    An optimisation that fails leaves that part as it was, and is warned of. `ipex.explain(optimized)` tells what was
    done, and why not.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> x = torch.randn(2, 8)
    >>> with torch.no_grad():
    ...     torch.allclose(ipex.optimize(model)(x), model(x), atol=1e-6)
    True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"ipex.optimize: expected an nn.Module, got {type(model).__name__}. {model_of(model)}")
    if is_exported(model):
        raise TypeError(
            "ipex.optimize: expected an nn.Module with layers, got the graph of an exported program. "
            "Call ipex.jit_optimize(program)."
        )
    check_dtype(dtype)
    if sample_input is not None:
        arguments(sample_input, "optimize(sample_input)")
    is_training = _is_training(model, optimizer)
    explicit = {
        "conv_bn_folding": conv_bn_folding,
        "linear_bn_folding": linear_bn_folding,
        "weights_prepack": weights_prepack,
        "replace_dropout_with_identity": replace_dropout_with_identity,
        "optimize_lstm": optimize_lstm,
        "split_master_weight_for_bf16": split_master_weight_for_bf16,
        "fuse_update_step": fuse_update_step,
        "auto_kernel_selection": auto_kernel_selection,
        "graph_mode": graph_mode,
        "concat_linear": concat_linear,
    }
    knobs = resolve(level, explicit, training=is_training, has_sample=sample_input is not None, stacklevel=2)
    if isinstance(model, torch.jit.ScriptModule):
        return _script_module(model, knobs, dtype, level, inplace, explicit)
    notes = Notes()
    if is_training:
        result: nn.Module | tuple[nn.Module, torch.optim.Optimizer] = _for_training(
            model, optimizer, dtype, inplace, knobs, notes
        )
    else:
        result = model if inplace else copy.deepcopy(model)
        _for_inference(result, dtype, sample_input, knobs, notes, explicit)
        result.__dict__[REPORT] = notes.report()
    notes.warn(stacklevel=2)
    return result


def _is_training(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> bool:
    is_training = getattr(model, "training", False)  # frozen modules don't say
    if is_training and optimizer is None:
        raise ValueError(
            "ipex.optimize: expected a model in eval mode, or an optimizer, got training=True and no optimizer. "
            "Call model.eval() for inference; pass the optimizer for training."
        )
    if optimizer is not None and not is_training:
        raise ValueError(
            "ipex.optimize: expected a model in training mode with an optimizer, got training=False. "
            "Call model.train(), or leave the optimizer out for inference."
        )
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"ipex.optimize: expected a torch.optim.Optimizer, got {type(optimizer).__name__}.")
    if optimizer is not None and not set(model.parameters()) & {p for g in optimizer.param_groups for p in g["params"]}:
        raise ValueError(
            f"ipex.optimize: expected an optimizer of the model's parameters, got a {type(optimizer).__name__} of "
            "others: nothing would train. Make it of model.parameters(), and keep the pair that optimize returns."
        )
    return optimizer is not None


def _for_inference(
    model: nn.Module, dtype: torch.dtype | None, sample: Any, knobs: Knobs, notes: Notes, explicit: dict[str, Any]
) -> None:
    end_training(model)
    is_on_cpu = all(p.device.type == "cpu" for p in model.parameters())
    needs_flow = knobs.conv_bn_folding or knobs.linear_bn_folding or knobs.weights_prepack or knobs.concat_linear
    casts = dtype in LOW
    flow = DataFlow(model) if needs_flow or casts else None
    cast: list[nn.Module] = []
    if flow and knobs.conv_bn_folding:
        with notes.of("conv_bn_folding"):
            fold_into_convolutions(model, flow, notes)
    if flow and knobs.linear_bn_folding:
        with notes.of("linear_bn_folding"):
            fold_into_linears(model, flow, notes)
    if knobs.replace_dropout_with_identity:
        with notes.of("replace_dropout_with_identity"):
            replace_dropout(model, notes)
    if flow and dtype is not None and casts and not (knobs.graph_mode and is_on_cpu and sample is not None):
        with notes.of("dtype"):
            cast = cast_weights(model, dtype, flow, notes)
            if not cast and any(parameter.dtype == torch.float64 for parameter in model.parameters()):
                notes.failed("dtype", "Its weights are float64, and float32 ones are cast. Call model.float() first.")
    if (knobs.weights_prepack or knobs.graph_mode) and is_auto_channels_last_enabled():
        with notes.of("channels_last"):
            to_channels_last(model, notes)
    if not is_on_cpu:
        let_layers_cast(cast)
        for knob in ("weights_prepack", "optimize_lstm", "auto_kernel_selection", "graph_mode"):
            if explicit.get(knob):
                notes.failed(knob, "It is for CPUs, and the model is on another device.")
            elif getattr(knobs, knob):
                notes.declined(knob, "the model", "it is for CPUs, and the model is on another device")
        return
    if knobs.graph_mode:
        # The graph packs the weights itself.
        let_layers_cast(cast)
        with notes.of("graph_mode"):
            run_as_graph(model, sample, notes, dtype=dtype)
        return
    if flow and knobs.weights_prepack:
        with notes.of("weights_prepack"):
            prepack_weights(model, flow, notes, casts=casts)
    if knobs.optimize_lstm:
        with notes.of("optimize_lstm"):
            optimize_recurrent_layers(model, flow or DataFlow(model), notes, casts=casts)
    if flow and knobs.concat_linear:
        with notes.of("concat_linear"):
            concat_linears(model, flow, notes)
    if sample is not None and knobs.auto_kernel_selection:
        with notes.of("auto_kernel_selection"):
            layers: set[nn.Module] = {m for m in model.modules() if isinstance(m, OneInput)}
            with torch.autocast("cpu", dtype=dtype, enabled=casts):
                inputs = shapes_seen(model, sample, layers)
            select_kernels(model, inputs, notes)
    elif sample is not None and knobs.weights_prepack:
        with notes.of("sample_input"), torch.autocast("cpu", dtype=dtype, enabled=casts):
            warm_up(model, sample)
    let_layers_cast(cast)


def _for_training(
    model: nn.Module, optimizer: Any, dtype: torch.dtype | None, inplace: bool, knobs: Knobs, notes: Notes
) -> tuple[nn.Module, Any]:
    if not inplace:
        model, optimizer = copy.deepcopy((model, optimizer))  # in one go: the optimizer holds the model's parameters
    reasons = prepare_optimizer(model, optimizer, dtype, knobs.split_master_weight_for_bf16, knobs.fuse_update_step)
    for reason in reasons:
        notes.declined("optimizer", "the optimizer", reason)
    if reasons and dtype in LOW and all(master_of(parameter) is None for parameter in model.parameters()):
        notes.failed("dtype", reasons[0])
    if knobs.weights_prepack:
        with notes.of("weights_prepack"):
            prepack_for_training(model, notes)
    model.__dict__[REPORT] = notes.report()
    return model, optimizer


def _script_module(
    model: torch.jit.ScriptModule,
    knobs: Knobs,
    dtype: torch.dtype | None,
    level: str,
    inplace: bool,
    explicit: dict[str, Any],
) -> torch.jit.ScriptModule:
    """A ScriptModule's graph has no modules to change: jit_optimize does all of it, or nothing."""
    ignored = sorted(name for name, value in explicit.items() if value is not None)
    if inplace:
        ignored.append("inplace")
    if ignored:
        warnings.warn(
            f"ipex.optimize: {', '.join(ignored)} ignored. A ScriptModule is optimised by ipex.jit_optimize, which "
            "returns a new one; its `disable` leaves passes out.",
            stacklevel=3,
        )
    if level == "O0":
        return model
    low = dtype if dtype in (torch.bfloat16, torch.float16) else None
    return jit_optimize(model, dtype=low)
