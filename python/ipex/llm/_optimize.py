"""`ipex.llm.optimize`: IPEX's front door for language models."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from transformers import PreTrainedModel

from .._optimize.front_door import REPORT
from .._optimize.front_door import optimize as optimize_modules
from .._optimize.notes import Notes
from ..quantization import Recipe, WeightOnlyLinear, WeightOnlyQuantConfig, from_awq, from_gptq
from ..quantization._checkpoints import configuration_of
from ..quantization._recipe import check_float_layers
from . import _encoder_decoder
from ._attention import CannotCapture
from ._cache import LARGEST_CODES
from ._call import StepCall
from ._capture import Captured, capture, layers_of, optimized
from ._codes import Rounding
from ._static import Calibration

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_KNOB = "capture of the step"
_CACHE = "kv_cache_dtype"
_LOADERS = {"gptq": from_gptq, "awq": from_awq}  # by quant_method


def optimize(
    model: Any,
    optimizer: Any = None,
    dtype: torch.dtype = torch.float32,
    inplace: bool = False,
    device: str = "cpu",
    quantization_config: WeightOnlyQuantConfig | Recipe | None = None,
    qconfig_summary_file: Any = None,
    low_precision_checkpoint: Any = None,
    sample_inputs: Any = None,
    deployment_mode: bool = True,
    cache_weight_for_large_batch: bool = False,
    kv_cache_dtype: torch.dtype | None = None,
) -> Any:
    """Return a language model of transformers that generates faster, by its own `generate`.

    The step of the model, some words in and the logits of the next out, is captured as one graph: linears with packed
    weights, attention over a cache with room, no Python between layers. A model whose step can't be captured is what
    `ipex.optimize` makes of it; `ipex.explain` says why. Calls that the graph does not stand for (`output_attentions`,
    gradients, caches of other kinds) run the model's own code.

    `dtype` is that of weights and results. `quantization_config`, of
    `ipex.quantization.get_weight_only_quant_qconfig_mapping`, keeps the weights of linears in 8 or 4 bits.
    With a `Recipe`, such as `get_smooth_quant_qconfig_mapping` returns, linears compute in int8: the result observes
    texts first, by `ipex.quantization.prepare(result, recipe)`, whose `save_qconf_summary(file)` writes scales. A
    second call with `qconfig_summary_file=file` quantizes.
    `low_precision_checkpoint` is a checkpoint of GPTQ or AWQ, whose integers the kernels read as they are: a state_dict
    (of GPTQ), a pair of one and `{"quant_method": "gptq"}` or "awq", with what else quantize_config.json says, or the
    folder that has both. All weights come from it. `quantization_config` then rounds the layers that it has in floats.
    `kv_cache_dtype`, torch.int8, torch.float8_e4m3fn or torch.float8_e5m2, keeps keys and values in 8 bits, with a
    scale for each word and head. By default they are kept in `dtype`.
    With `deployment_mode` the model's own weights are let go of once they are packed: nothing is held twice, and calls
    that need the model's own code raise. `inplace=True` changes the model itself.

    In training mode, or with an optimizer, the model is returned as it is, with a warning, as IPEX did.
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"ipex.llm.optimize: expected a model of transformers, got {type(model).__name__}. "
            "Load it with from_pretrained; for other modules call ipex.optimize."
        )
    _check(dtype, device, quantization_config, qconfig_summary_file, low_precision_checkpoint)
    if kv_cache_dtype is not None and kv_cache_dtype not in LARGEST_CODES:
        known = ", ".join(map(str, LARGEST_CODES))
        raise ValueError(
            f"ipex.llm.optimize: expected None or one of {known} in kv_cache_dtype, got {kv_cache_dtype!r}. Leave it "
            "out to keep keys and values in dtype."
        )
    if any(hasattr(parameter, "to_local") for parameter in model.parameters()):
        raise TypeError(
            "ipex.llm.optimize: expected plain weights, got DTensors, as a tp_plan loads them. Load the model without, "
            "and call ipex.llm.tensor_parallel(model)."
        )
    if isinstance(quantization_config, Recipe):
        names = [name for name, _ in model.named_modules()]
        check_float_layers("llm.optimize", quantization_config.float_layers, "layers to quantise", names)
    if model.training or optimizer is not None:
        warnings.warn(
            "ipex.llm.optimize: expected a model in eval mode and no optimizer. The model is returned as it is. Call "
            "model.eval() first; for training use ipex.optimize.",
            stacklevel=2,
        )
        return model if optimizer is None else (model, optimizer)
    notes = Notes()
    if low_precision_checkpoint is not None:
        model = _with_checkpoint(model, low_precision_checkpoint, inplace, notes)
    elif not inplace:
        model = copy.deepcopy(model)
    before = vars(model).get("_compiled_call_impl")
    if isinstance(before, StepCall):  # as after a calibration in place
        before.check_weights()
        del model.__dict__["_compiled_call_impl"]
    _cast(model, dtype)
    calibration = Calibration(quantization_config) if isinstance(quantization_config, Recipe) else None
    rounding = Rounding(model)
    if getattr(model.config, "is_encoder_decoder", False):
        if kv_cache_dtype is not None:
            notes.declined(_CACHE, type(model).__name__, "it has an encoder")
        return _with_encoder(model, quantization_config, rounding, notes)
    if isinstance(quantization_config, WeightOnlyQuantConfig):
        _round(rounding, quantization_config, notes)
    try:
        captured = capture(model, layers_of(model), calibration.optimized if calibration else optimized)
    except CannotCapture as error:
        is_rounded = rounding.has_changed_anything() and _runs(model)
        if is_rounded:
            notes.applied("quantization_config", type(model).__name__, "its layers hold codes")
        else:
            rounding.undo()
        if kv_cache_dtype is not None:
            notes.declined(_CACHE, type(model).__name__, "its step is not captured")
        return _without_capture(model, str(error), None if is_rounded else quantization_config, notes)
    del rounding  # and with it the layers that were rounded
    if kv_cache_dtype is not None and captured.own_attention:
        notes.declined(_CACHE, type(model).__name__, f"attention is its own: {captured.own_attention}")
    elif kv_cache_dtype is not None:
        captured.codes = kv_cache_dtype
        notes.applied(
            _CACHE, type(model).__name__, f"keys and values are kept in {kv_cache_dtype}, a scale for each row"
        )
    call = StepCall(model, captured)
    if calibration is not None:
        if qconfig_summary_file is None:
            captured.graph = calibration.observed()
            call.prepared = calibration.prepared
            notes.applied("quantization_config", type(model).__name__, "its step observes what layers read")
        else:
            captured.graph = calibration.quantized(qconfig_summary_file)
            notes.applied("quantization_config", type(model).__name__, "its layers have the scales of the file")
    has_text_alone = model.config.get_text_config(decoder=True) is model.config
    if deployment_mode and has_text_alone and call.prepared is None:  # what makes words of images is not in the graph
        call.let_weights_go()
    attention = f"its own: {captured.own_attention}" if captured.own_attention else "one op"
    notes.applied(_KNOB, type(model).__name__, f"one graph for all lengths and batches; attention is {attention}")
    model.__dict__["_compiled_call_impl"] = call  # nn.Module.__call__ asks this first
    model.__dict__[REPORT] = notes.report()
    return model


def _check(dtype: Any, device: Any, quantization: Any, summary: Any, checkpoint: Any) -> None:
    if dtype not in _DTYPES:
        known = ", ".join(map(str, _DTYPES))
        raise ValueError(f"ipex.llm.optimize: expected one of {known} in dtype, got {dtype!r}. Take one of these.")
    if str(device) != "cpu":
        raise ValueError(f"ipex.llm.optimize: expected device='cpu', got {device!r}.")
    if quantization is not None and not isinstance(quantization, (WeightOnlyQuantConfig, Recipe)):
        raise TypeError(
            "ipex.llm.optimize: expected what ipex.quantization.get_weight_only_quant_qconfig_mapping or "
            f"get_smooth_quant_qconfig_mapping returns in quantization_config, got {type(quantization).__name__}."
        )
    if summary is not None and not isinstance(quantization, Recipe):
        raise ValueError(
            "ipex.llm.optimize: expected the recipe of the calibration in quantization_config beside "
            "qconfig_summary_file, got none. Give what get_smooth_quant_qconfig_mapping returned."
        )
    if isinstance(quantization, Recipe) and dtype is not torch.float32:
        raise ValueError(
            f"ipex.llm.optimize: expected dtype=torch.float32 beside a recipe for static int8, got {dtype}. What is "
            "between its int8 layers computes in float32."
        )
    if isinstance(quantization, Recipe) and checkpoint is not None:
        raise ValueError(
            "ipex.llm.optimize: expected low_precision_checkpoint or a recipe for static int8, got both. Layers of the "
            "checkpoint keep its integers: leave the recipe out."
        )


def _cast(model: Any, dtype: torch.dtype) -> None:
    """As from_pretrained does: what a model computes for itself stays, as the frequencies of rotary embeddings."""
    own = [
        (module, name, module._buffers[name])
        for module in model.modules()
        for name in module._non_persistent_buffers_set
    ]
    model.to(dtype)
    for module, name, buffer in own:
        module._buffers[name] = buffer


def _with_checkpoint(model: Any, checkpoint: Any, inplace: bool, notes: Notes) -> Any:
    method = configuration_of(checkpoint, "llm.optimize").get("quant_method", "gptq")
    if method not in _LOADERS:
        known = " or ".join(map(repr, _LOADERS))
        raise ValueError(
            f"ipex.llm.optimize: expected {known} in quant_method of low_precision_checkpoint, got {method!r}. Others "
            "are not read: load the model in floats and give a quantization_config."
        )
    loaded = _LOADERS[method](model, checkpoint, strict=False)
    count = sum(isinstance(module, WeightOnlyLinear) for module in loaded.modules())
    notes.applied("low_precision_checkpoint", type(model).__name__, f"{count} linears have its integers")
    if not inplace:
        return loaded
    vars(model).update(vars(loaded))  # nothing of it was changed while the checkpoint could be refused
    return model


def _round(rounding: Rounding, config: WeightOnlyQuantConfig, notes: Notes) -> None:
    rounding.ends()
    format_ = config.weight_dtype.value, config.group_size, config.symmetric
    left = dict.fromkeys(rounding.linears(*format_), "its inputs are no whole number of groups")
    for name, reason in (left | rounding.experts(*format_)).items():
        notes.declined("quantization_config", name, reason)
    rounding.rows(config.row_bits)
    rounding.leave_a_parameter()


def _runs(model: Any) -> bool:
    """Whether its own code takes layers of codes."""
    try:
        with torch.no_grad():
            model(input_ids=torch.zeros(1, 1, dtype=torch.long))
    except Exception:
        return False
    return True


def _with_encoder(model: Any, quantization: Any, rounding: Rounding, notes: Notes) -> Any:
    try:
        captured = _rounded_and_captured(model, quantization, rounding, notes)
    except CannotCapture as error:
        return _without_capture(model, str(error), quantization, notes)
    if isinstance(quantization, Recipe):
        notes.declined("quantization_config", type(model).__name__, "it has an encoder")
    notes.applied(_KNOB, type(model).__name__, "one graph for all lengths and batches, from the second word on")
    result = _as_modules(model, notes)  # its encoder, and the first word
    result.__dict__["_compiled_call_impl"] = _encoder_decoder.CrossStepCall(result, captured)
    return result


def _rounded_and_captured(model: Any, quantization: Any, rounding: Rounding, notes: Notes) -> Captured:
    if isinstance(quantization, WeightOnlyQuantConfig):
        try:
            _round(rounding, quantization, notes)
            return _encoder_decoder.capture(model)
        except CannotCapture as error:  # as where the model reads a weight itself
            rounding.undo()
            notes.declined("quantization_config", type(model).__name__, str(error))
    return _encoder_decoder.capture(model)


def _as_modules(model: Any, notes: Notes) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = optimize_modules(model, inplace=True)
    own = result.__dict__[REPORT]
    result.__dict__[REPORT] = type(own)(tuple(notes.report()) + tuple(own))
    return result


def _without_capture(model: Any, reason: str, quantization: Any, notes: Notes) -> Any:
    notes.declined(_KNOB, type(model).__name__, reason)
    if quantization is not None:
        notes.declined("quantization_config", type(model).__name__, "its step is not captured")
    result = _as_modules(model, notes)
    warnings.warn(f"ipex.llm.optimize: the step of {type(model).__name__} is not captured: {reason}.", stacklevel=3)
    return result
