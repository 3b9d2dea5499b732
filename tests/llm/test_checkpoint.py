"""`low_precision_checkpoint`: with integers of GPTQ or AWQ a model generates what their numbers generate."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import ipex  # noqa: E402
import packed_checkpoints as packed  # noqa: E402
from ipex import llm  # noqa: E402
from ipex.quantization import WeightOnlyLinear, WoqWeightDtype, get_weight_only_quant_qconfig_mapping  # noqa: E402
from llm.families import VOCABULARY, make  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
GREEDY = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
PROMPT = torch.randint(2, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def quantised(family: str, method: str, **how: Any) -> tuple[Any, Any, dict[str, Tensor]]:
    """A model of other weights, one with the checkpoint's numbers in floats, and the checkpoint."""
    model, in_floats = make(family), make(family)
    head = in_floats.get_output_embeddings()
    for parameter in model.parameters():
        parameter.data.mul_(-1)  # what is not loaded shows
    checkpoint = dict(in_floats.state_dict())
    if head.weight is in_floats.get_input_embeddings().weight:
        checkpoint = {name: each for name, each in checkpoint.items() if each.data_ptr() != head.weight.data_ptr()}
        checkpoint |= {"model.embed_tokens.weight": head.weight.clone()}
    for number, (name, module) in enumerate(in_floats.named_modules()):
        if type(module) is nn.Linear and module is not head:
            size = (module.out_features, module.in_features)
            own = packed.linear(*size, 4, 32, seed=number, **{"is_symmetric": False, **how})
            # Of zeros in the whole range the numbers are far from 0 on the mean, and all texts are the same.
            own.zeros.clamp_(5, 11)
            module.weight.copy_(own.weight())
            del checkpoint[f"{name}.weight"]
            checkpoint |= packed.gptq(own, name) if method == "gptq" else packed.awq(own, name)
    return model, in_floats, checkpoint


def assert_generates(optimized: Any, in_floats: Any) -> None:
    expected = in_floats.generate(PROMPT, **GREEDY)
    assert len(expected[:, PROMPT.shape[1] :].unique()) > 5
    assert torch.equal(optimized.generate(PROMPT, **GREEDY), expected)


def ran_in_graph(model: Any) -> bool:
    return model.__dict__["_compiled_call_impl"].reasons == set()


@pytest.mark.parametrize(
    ("family", "method", "how"),
    [
        ("Llama", "gptq", {}),
        ("Llama", "gptq", {"is_ordered": False}),
        ("Qwen2", "gptq", {"is_symmetric": True}),
        ("Mistral", "awq", {}),
        ("Qwen3", "awq", {}),
    ],
)
def test_the_numbers_of_the_checkpoint(family, method, how):
    model, in_floats, checkpoint = quantised(family, method, **how)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    configuration = {"quant_method": method, "bits": 4, "group_size": 32}
    optimized = llm.optimize(model, low_precision_checkpoint=(checkpoint, configuration))
    assert_generates(optimized, in_floats)
    assert ran_in_graph(optimized)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    (decision,) = [d for d in ipex.explain(optimized).decisions if d.pass_name == "low_precision_checkpoint"]
    linears = sum(name.endswith("qweight") for name in checkpoint)
    assert decision.reason == f"{linears} linears have its integers"


def test_a_state_dict_alone_is_of_gptq():
    model, in_floats, checkpoint = quantised("Llama", "gptq")
    assert_generates(llm.optimize(model, low_precision_checkpoint=checkpoint), in_floats)


def test_the_model_itself():
    model, in_floats, checkpoint = quantised("Llama", "gptq")
    assert llm.optimize(model, low_precision_checkpoint=checkpoint, inplace=True) is model
    assert_generates(model, in_floats)
    assert ran_in_graph(model)


def test_a_model_without_weights():
    _, in_floats, checkpoint = quantised("Llama", "gptq")
    with torch.device("meta"):
        model = type(in_floats)(in_floats.config).eval()
    model.model.rotary_emb = in_floats.model.rotary_emb  # its frequencies are in no checkpoint
    assert_generates(llm.optimize(model, low_precision_checkpoint=checkpoint), in_floats)


def test_what_the_checkpoint_has_in_floats_is_rounded_by_the_configuration():
    model, in_floats, checkpoint = quantised("Llama", "gptq")
    mapping = get_weight_only_quant_qconfig_mapping(weight_dtype=WoqWeightDtype.INT4)
    optimized = llm.optimize(
        model, low_precision_checkpoint=checkpoint, quantization_config=mapping, deployment_mode=False
    )
    assert isinstance(optimized.lm_head, WeightOnlyLinear)
    assert optimized.lm_head.bits == 8
    layer = optimized.model.layers[0].mlp.up_proj
    numbers = layer(torch.eye(layer.in_features)).T
    torch.testing.assert_close(numbers, in_floats.model.layers[0].mlp.up_proj.weight, rtol=0, atol=1e-6)
    expected = in_floats(PROMPT).logits
    torch.testing.assert_close(optimized(PROMPT).logits, expected, rtol=0, atol=0.02 * expected.abs().max().item())


def test_a_step_that_is_not_captured():
    model, in_floats, checkpoint = quantised("Llama", "gptq")
    model.config.rope_parameters["rope_type"] = "dynamic"  # by its configuration it hangs on the length of the text
    optimized = llm.optimize(model, low_precision_checkpoint=checkpoint)
    assert_generates(optimized, in_floats)
    assert any("(dynamic) depends on the length" in each.reason for each in ipex.explain(optimized).decisions)


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_the_folder_of_a_quantised_model(method, tmp_path):
    model, in_floats, checkpoint = quantised("Llama", method)
    save_file(checkpoint, tmp_path / "model.safetensors")
    said = {"quant_method": method, "bits": 4, "group_size": 32}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": said}))
    assert_generates(llm.optimize(model, low_precision_checkpoint=tmp_path), in_floats)
    with pytest.raises(ValueError, match=r"groups of 64 of \d+ inputs .*, got scales of \d groups"):
        llm.optimize(model, low_precision_checkpoint=(tmp_path, {"group_size": 64}))


def test_tensors_that_the_model_has_no_place_for_are_ignored():
    model, in_floats, checkpoint = quantised("Llama", "gptq")
    checkpoint["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    assert_generates(llm.optimize(model, low_precision_checkpoint=checkpoint), in_floats)


UP = "model.layers.0.mlp.up_proj"


@pytest.mark.parametrize(
    ("change", "configuration", "message"),
    [
        ({}, {"quant_method": "bitsandbytes"}, "expected 'gptq' or 'awq' in quant_method .*, got 'bitsandbytes'"),
        ({}, {"quant_method": "awq"}, "from_awq: expected qweight of int32"),
        ({}, {"desc_act": True}, "from_gptq: expected g_idx in order|as groups have an order"),
        ({}, {"sym": True}, "in a symmetric checkpoint for model.layers.0.self_attn.q_proj, got zeros of 5 to 11"),
        ({}, {"bits": 8}, "expected 8 bits for each of 64 inputs for model.layers.0.self_attn.q_proj, got 4"),
        ({}, {"group_size": 64}, "groups of 64 of 64 inputs .*, got scales of 2 groups"),
        ({}, {"checkpoint_format": "marlin"}, "expected 'gptq' or 'gptq_v2' in checkpoint_format, got 'marlin'"),
        ({f"{UP}.scales": None}, {}, f"expected scales for {UP}, got none"),
        ({"model.norm.weight": None}, {}, "expected model.norm.weight in the checkpoint, got no such tensor"),
    ],
)
def test_what_is_refused_leaves_the_model_as_it_was(change, configuration, message):
    model, _, checkpoint = quantised("Llama", "gptq")
    for name in [name for name in checkpoint if name.endswith("g_idx")]:
        del checkpoint[name]
    checkpoint |= change
    checkpoint = {name: tensor for name, tensor in checkpoint.items() if tensor is not None}
    expected = model(PROMPT).logits
    with pytest.raises(ValueError, match=message):
        llm.optimize(model, low_precision_checkpoint=(checkpoint, configuration), inplace=True)
    assert type(model.get_submodule(UP)) is nn.Linear
    assert torch.equal(model(PROMPT).logits, expected)


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        (3, "expected a state_dict or a path in checkpoint, got int"),
        (({}, {}, {}), "expected a pair of a checkpoint and a dict, .* got a tuple of dict, dict, dict"),
        (({}, "gptq"), "expected a pair of a checkpoint and a dict, .* got a tuple of dict, str"),
    ],
)
def test_what_is_no_checkpoint(checkpoint, message):
    with pytest.raises(TypeError, match=message):
        llm.optimize(make("Llama"), low_precision_checkpoint=checkpoint)
