"""Static int8 of language models: IPEX's way, which observes texts in one model and quantizes the next by a file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import ipex

pytest.importorskip("transformers", reason="transformers is not installed")

from ipex import llm
from llm.families import make, prompts, quiet, words  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore")
RECIPE = dataclasses.replace(ipex.quantization.get_smooth_quant_qconfig_mapping(), forced=True)  # on any CPU


def calibrated(model: Any, file: Path, recipe: Any = RECIPE, **how: Any) -> None:
    """Write the scales of a model that has seen some texts."""
    observing = llm.optimize(model, quantization_config=recipe, **how)
    prepared = ipex.quantization.prepare(observing.eval(), recipe, example_inputs=words(1, 8))
    for seed in range(4):
        prepared(words(2, 24, seed=10 + seed))
    prepared.save_qconf_summary(qconf_summary=file)


def graph_of(model: Any) -> Any:
    return model.__dict__["_compiled_call_impl"].captured.graph.inlined_graph


def count(model: Any, kind: str) -> int:
    return sum(node.kind() == kind for node in graph_of(model).nodes())


def error(model: Any, expected: torch.Tensor, x: torch.Tensor) -> float:
    return float((model(x).logits - expected).norm() / expected.norm())


# With a product of 64 numbers, one of 8 bits is off by about a hundredth; two layers and a head add up.
@pytest.mark.parametrize(("family", "linears"), [("Llama", 15), ("GPTJ", 13), ("OPT", 13), ("Bloom", 9)])
def test_as_the_model_in_floats(family, linears, tmp_path):
    model = make(family)
    calibrated(model, tmp_path / "scales.json")
    optimized = llm.optimize(model, quantization_config=RECIPE, qconfig_summary_file=tmp_path / "scales.json")
    assert count(optimized, "ipex::quantized_linear_run") == linears
    assert count(optimized, "ipex::linear_run") == count(optimized, "ipex::observe") == 0
    x = words(2, 9)
    assert 1e-3 < error(optimized, model(x).logits, x) < 0.06
    assert optimized.generate(**prompts(), max_new_tokens=8, do_sample=False).shape == (2, 20)
    # Its cache holds what one call with the whole text makes: each new token is the one that call finds.
    tokens = optimized.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=8, do_sample=False)
    assert torch.equal(optimized(tokens).logits[:, 8:-1].argmax(-1), tokens[:, 9:])
    assert optimized.__dict__["_compiled_call_impl"].reasons == set()
    reasons = [d.reason for d in ipex.explain(optimized) if d.pass_name == "quantization_config"]
    assert reasons == ["its layers have the scales of the file"]


def test_what_observes_computes_in_floats_and_keeps_its_weights():
    model = make("Llama")
    observing = llm.optimize(model, quantization_config=RECIPE)
    x = words(2, 9)
    assert error(observing, model(x).logits, x) < 1e-5
    assert count(observing, "ipex::observe") == 9
    assert observing.state_dict().keys() == model.state_dict().keys()


def test_smoothing_saves_channels_that_outliers_hide(tmp_path):
    model = make("Llama")
    for layer in model.model.layers:  # what one makes a hundred times larger, the other divides by it
        layer.input_layernorm.weight.data[3] *= 100
        for linear in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):
            linear.weight.data[:, 3] /= 100
    x, errors = words(2, 9), []
    for recipe in (RECIPE, ipex.quantization.Recipe("min_max", forced=True)):
        calibrated(model, tmp_path / "scales.json", recipe)
        optimized = llm.optimize(model, quantization_config=recipe, qconfig_summary_file=tmp_path / "scales.json")
        errors.append(error(optimized, model(x).logits, x))
    assert errors[0] < 0.06
    assert errors[0] < errors[1] / 3


def test_in_place(tmp_path):
    model, x = make("Llama"), words(2, 9)
    expected = model(x).logits
    calibrated(model, tmp_path / "scales.json", inplace=True)
    how = {"quantization_config": RECIPE, "qconfig_summary_file": tmp_path / "scales.json", "inplace": True}
    assert llm.optimize(model, **how) is model
    assert 1e-3 < error(model, expected, x) < 0.06
    with pytest.raises(RuntimeError, match="expected the weights of the model, got none"):
        llm.optimize(model, **how)
    assert error(model, expected, x) < 0.06  # it goes on


def test_layers_that_stay_in_floats(tmp_path):
    model = make("Llama")
    recipe = dataclasses.replace(RECIPE, float_layers=["lm_head", "model.layers.1.mlp"])
    calibrated(model, tmp_path / "scales.json", recipe)
    optimized = llm.optimize(model, quantization_config=recipe, qconfig_summary_file=tmp_path / "scales.json")
    assert count(optimized, "ipex::quantized_linear_run") == 15 - 4
    wrong = dataclasses.replace(RECIPE, float_layers=["head"])
    with pytest.raises(ValueError, match="expected paths of modules .* in float_layers, got 'head'"):
        llm.optimize(model, quantization_config=wrong)


def test_files_that_are_not_of_this_model(tmp_path):
    model, file = make("Llama"), tmp_path / "scales.json"
    calibrated(model, file)
    written = json.loads(file.read_text())
    key, other = list(written["scales"])[:2]
    how = {"quantization_config": RECIPE, "qconfig_summary_file": file}

    def changed(**rows: Any) -> str:
        return json.dumps({**written, "scales": {**written["scales"], **rows}})

    factors = written["scales"][key][2]
    for text, message in (
        ("no JSON", "expected a file that save_qconf_summary wrote, got JSONDecodeError"),
        ("[" * 100_000, "expected a file that save_qconf_summary wrote, got RecursionError"),
        ('{"scales": {}}', "expected a file that save_qconf_summary wrote, got something else"),
        (json.dumps({"ipex_scales": 1, "scales": {key: written["scales"][key]}}), "got those of another"),
        (changed(more=[1.0, 0, None]), "got those of another, which differ at 'more'"),
        (changed(**{other: [0.0, 0, None]}), "got a wrong scale at"),
        (changed(**{other: [float("nan"), 0, None]}), "got a wrong scale at"),
        (changed(**{other: [1.0, 256, None]}), "got a wrong scale at"),
        (changed(**{other: [1.0, True, None]}), "got a wrong scale at"),
        (changed(**{other: [1e-50, 0, None]}), "got a wrong scale at"),
        (changed(**{other: 3}), "got a wrong scale at"),
        (changed(**{key: [1.0, 0, factors[1:]]}), "got wrong factors at"),
        (changed(**{key: [1.0, 0, [-1.0, *factors[1:]]]}), "got wrong factors at"),
        (changed(**{key: [1.0, 0, [1e300, *factors[1:]]]}), "got wrong factors at"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            llm.optimize(model, **how)
    with pytest.raises(FileNotFoundError):
        llm.optimize(model, quantization_config=RECIPE, qconfig_summary_file=tmp_path / "none.json")


def test_calls_that_do_not_fit(tmp_path):
    model = make("Llama")
    weights = ipex.quantization.get_weight_only_quant_qconfig_mapping()
    for how, message in (
        ({"qconfig_summary_file": "x"}, "expected the recipe of the calibration in quantization_config"),
        ({"qconfig_summary_file": "x", "quantization_config": weights}, "expected the recipe of the calibration"),
        ({"dtype": torch.bfloat16, "quantization_config": RECIPE}, "expected dtype=torch.float32 beside a recipe"),
        ({"low_precision_checkpoint": {}, "quantization_config": RECIPE}, "expected low_precision_checkpoint or a"),
    ):
        with pytest.raises(ValueError, match=message):
            llm.optimize(model, **how)
    observing = llm.optimize(model, quantization_config=RECIPE)
    with pytest.raises(ValueError, match="expected the recipe that ipex.llm.optimize was given, got another"):
        ipex.quantization.prepare(observing, ipex.quantization.Recipe())
    prepared = ipex.quantization.prepare(observing, RECIPE)
    with pytest.raises(ValueError, match="expected calibration data at .*, got none"):
        prepared.save_qconf_summary(tmp_path / "scales.json")
    with pytest.raises(TypeError, match="expected a prepared module, got the step of a language model"):
        ipex.quantization.convert(prepared)
    for name in ("act_observer", "wei_ic_observer"):
        with pytest.raises(ValueError, match=f"expected no {name}, got 3"):
            ipex.quantization.get_smooth_quant_qconfig_mapping(**{name: 3})
    with pytest.raises(ValueError, match="expected 0 to 1 in smooth, got 'auto'"):
        ipex.quantization.get_smooth_quant_qconfig_mapping("auto")
