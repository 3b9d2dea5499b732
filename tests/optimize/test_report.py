"""`ipex.explain` of what `ipex.optimize` returns, and models on other devices."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import ipex
from optimize.models import Classifier, trained
from support import assert_same


def test_every_layer_has_a_reason():
    model = trained(Classifier())
    model.block.conv2.double()
    report = ipex.explain(ipex.optimize(model))
    assert {(d.pass_name, d.node) for d in report.applied} >= {
        ("conv_bn_folding", "stem.1"),
        ("replace_dropout_with_identity", "block.dropout"),
        ("weights_prepack", "stem.0"),
        ("weights_prepack", "head"),
    }
    assert {(d.pass_name, d.node): d.reason for d in report.declined} == {
        ("conv_bn_folding", "block.bn2"): "the layer and it are of several dtypes or devices",
        ("weights_prepack", "block.conv2"): "its parameters are float64",
    }
    assert "applied   weights_prepack: head: packed" in str(report)


def test_a_folded_batch_norm_says_which_module_does_it_now():
    report = ipex.explain(ipex.optimize(trained(Classifier())))
    assert ("stem.1", "stem.0") in {(d.node, d.into) for d in report.applied if d.into}
    assert {d.pass_name for d in report.applied if d.into} == {"conv_bn_folding"}


def test_it_goes_with_copies():
    optimized = ipex.optimize(trained(Classifier()))
    for twin in (copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
        assert ipex.explain(twin) == ipex.explain(optimized)


def test_a_module_that_was_not_optimised_is_refused():
    with pytest.raises(TypeError, match=r"Call ipex.jit_optimize\(module, example_inputs\) or ipex.optimize\(module\)"):
        ipex.explain(nn.Linear(2, 2))


def test_on_a_gpu_what_needs_no_onednn_is_done():
    if not torch.cuda.is_available():
        pytest.skip("this machine has no GPU that torch can use")
    model, x = trained(Classifier()).cuda(), torch.randn(2, 3, 16, 16, device="cuda")
    optimized = ipex.optimize(model)
    applied = {d.pass_name for d in ipex.explain(optimized).applied}
    assert applied == {"conv_bn_folding", "replace_dropout_with_identity", "channels_last"}
    with torch.no_grad():
        assert_same(optimized(x).cpu(), model(x).cpu(), 1e-4)
        low = ipex.optimize(model, dtype=torch.bfloat16)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert (low(x).float() - model(x).float()).abs().max() < 0.05
    with ipex.fp32_math_mode(ipex.FP32MathMode.TF32, "cuda"):
        assert ipex.get_fp32_math_mode("cuda") is ipex.FP32MathMode.TF32


def test_off_the_cpu_the_device_independent_part_is_done():
    model = trained(Classifier())
    on_meta = copy.deepcopy(model).to("meta")
    optimized = ipex.optimize(on_meta)
    reasons = {d.pass_name: d.reason for d in ipex.explain(optimized).declined}
    assert "it is for CPUs" in reasons["weights_prepack"]
    assert "have no values yet" in reasons["conv_bn_folding"]
    assert type(optimized.block.dropout) is nn.Identity
