"""Every model with every knob, on and off, computes what it did."""

from __future__ import annotations

import copy

import pytest
import torch

import ipex
from optimize.models import CASES, inputs_of, model_of
from support import FP32_TOLERANCE, assert_same

KNOBS = [
    "conv_bn_folding",
    "linear_bn_folding",
    "weights_prepack",
    "replace_dropout_with_identity",
    "optimize_lstm",
    "auto_kernel_selection",
    "graph_mode",
    "concat_linear",
]


def flat(result):
    return [result] if isinstance(result, torch.Tensor) else [t for r in result for t in flat(r)]


def assert_close(actual, expected, tolerance):
    """The same values. The layout of images is the optimised model's to choose."""
    assert len(flat(actual)) == len(flat(expected))
    for a, e in zip(flat(actual), flat(expected)):
        assert_same(a.contiguous(), e.contiguous(), tolerance)


@pytest.mark.parametrize("knob", [None, *KNOBS])
@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("level", ["O0", "O1"])
@pytest.mark.parametrize("name", CASES)
def test_float32(name, level, knob, value):
    if knob is None and not value:
        pytest.skip("no knob to turn off")
    model, inputs = model_of(name), inputs_of(name)
    options = {} if knob is None else {knob: value}
    if knob in ("auto_kernel_selection", "concat_linear") and value:
        options["weights_prepack"] = True
    if options.get("weights_prepack", level == "O1") or options.get("graph_mode"):
        options["sample_input"] = inputs
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        expected = model(*inputs)
        optimized = ipex.optimize(model, level=level, **options)
        for _ in range(3):
            assert_close(optimized(*inputs), expected, 2 * FP32_TOLERANCE)
        assert_same(model(*inputs), expected, 0)
    assert type(optimized).__mro__[-3:] == type(model).__mro__[-3:]
    assert isinstance(optimized, type(model))
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[key])
        assert tensor.stride() == before[key].stride()


@pytest.mark.parametrize("prepack", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_16_bits_under_autocast(name, dtype, prepack):
    model, inputs = model_of(name), inputs_of(name)
    with torch.no_grad():
        exact = model(*inputs)
        try:
            with torch.autocast("cpu", dtype=dtype):
                model(*inputs)
        except RuntimeError as error:
            pytest.skip(f"eager itself fails on this CPU: {error}")
        optimized = ipex.optimize(model, dtype=dtype, weights_prepack=prepack, optimize_lstm=prepack)
        with torch.autocast("cpu", dtype=dtype):
            eager, actual = model(*inputs), optimized(*inputs)
    for a, e, x in zip(flat(actual), flat(eager), flat(exact)):
        assert a.dtype == e.dtype
        scale = x.abs().max().item()
        # Of the same size as what autocast itself gives away, and half a rounding.
        bound = 3 * (e.float() - x).abs().max().item() + torch.finfo(dtype).eps * scale
        assert (a.float() - x).abs().max().item() <= bound


@pytest.mark.parametrize("name", ["classifier", "mlp", "attention", "decoder"])
def test_16_bits_without_autocast(name):
    model, inputs = model_of(name), inputs_of(name)
    with torch.no_grad():
        exact = model(*inputs)
        actual = ipex.optimize(model, dtype=torch.bfloat16)(*inputs)
    assert actual.dtype == torch.float32
    assert (actual - exact).abs().max() <= 8 * torch.finfo(torch.bfloat16).eps * exact.abs().max()
