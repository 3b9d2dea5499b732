"""Models with an encoder: what they generate is what the model itself does, by transformers' own `generate`."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import ipex

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from ipex import llm  # noqa: E402
from llm.families import VOCABULARY, prompts, quiet  # noqa: E402, F401

pytestmark = pytest.mark.filterwarnings("ignore")
_SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}
_OF_T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_layers": 2,
    "num_heads": 4,
    "pad_token_id": 0,
    "eos_token_id": None,
    "decoder_start_token_id": 1,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "T5": _OF_T5,
    "MT5": _OF_T5,
    "UMT5": _OF_T5,
    "Bart": _SIZES,
    "MBart": _SIZES,
    "M2M100": _SIZES,
    "Pegasus": _SIZES,
    "Blenderbot": _SIZES,
    "Whisper": {
        **_SIZES,
        "num_mel_bins": 16,
        "max_source_positions": 20,
        "max_target_positions": 64,
        "begin_suppress_tokens": None,
    },
}
BEGINS = {"a text begins"}


def make(family: str, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        config = getattr(transformers, f"{family}Config")(**{**FAMILIES[family], **more})
        model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    for parameter in model.parameters():  # as they come, all logits are nearly the same
        if parameter.dim() > 1:
            parameter.data.mul_(4)
    return model


def source(family: str, batch: int = 2) -> dict[str, torch.Tensor]:
    if family == "Whisper":
        return {"input_features": torch.randn(batch, 16, 40, generator=torch.Generator().manual_seed(0))}
    return prompts(batch, 9, slice(7, None))


def why_as_before(model: Any) -> set[str]:
    return model.__dict__["_compiled_call_impl"].reasons


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_and_beams(family):
    model = make(family)
    optimized = llm.optimize(model)
    for beams in (1, 3):
        how = {"max_new_tokens": 20, "do_sample": False, "num_beams": beams, **source(family)}
        how["no_repeat_ngram_size"] = 1  # tied to the embedding, a random head says the last word again
        expected = model.generate(**how)
        assert len(expected.unique()) > 8
        assert torch.equal(optimized.generate(**how), expected)
    assert why_as_before(optimized) == BEGINS
    (decision,) = [d for d in ipex.explain(optimized).decisions if d.pass_name == "capture of the step"]
    assert decision.applied


def test_forward():
    model = make("T5")
    optimized = llm.optimize(model)
    x, first, more = source("T5"), torch.tensor([[1], [1]]), torch.tensor([[7, 8, 9], [5, 6, 7]])
    results = []
    for each in (model, optimized):
        encoded = each.get_encoder()(**x)
        begun = each(encoder_outputs=encoded, attention_mask=x["attention_mask"], decoder_input_ids=first)
        results.append(
            each(
                encoder_outputs=encoded,
                attention_mask=x["attention_mask"],
                decoder_input_ids=more,
                past_key_values=begun.past_key_values,
            )
        )
    theirs, ours = results
    assert type(ours) is type(theirs)
    assert ours.past_key_values.get_seq_length() == 4
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(ours.encoder_last_hidden_state, theirs.encoder_last_hidden_state, rtol=1e-4, atol=1e-3)
    assert why_as_before(optimized) == BEGINS


def test_calls_that_the_graph_does_not_stand_for_run_the_model():
    model = make("Bart")
    optimized = llm.optimize(model)
    x = source("Bart")
    how = {"max_new_tokens": 6, "do_sample": False, "return_dict_in_generate": True, "output_attentions": True}
    ours, theirs = optimized.generate(**x, **how), model.generate(**x, **how)
    assert torch.equal(ours.sequences, theirs.sequences)
    assert len(ours.cross_attentions) == len(theirs.cross_attentions)
    assert "it has output_attentions" in why_as_before(optimized)
    with torch.enable_grad():
        assert optimized(**x, decoder_input_ids=torch.tensor([[1], [1]])).logits.requires_grad


def test_a_step_that_computes_something_else_is_not_used():
    """Python that asks for a length answers once, while it is traced."""
    model = make("T5")
    attention = model.decoder.block[0].layer[0].SelfAttention
    own = attention.compute_bias
    attention.compute_bias = lambda count, keys, **how: own(count, keys, **how) * (1 if keys < 20 else 9)
    how = {"max_new_tokens": 24, "do_sample": False, **source("T5")}
    expected = model.generate(**how)
    with pytest.warns(UserWarning, match="is not captured: its step computes other logits"):
        optimized = llm.optimize(model, inplace=True)
    assert torch.equal(optimized.generate(**how), expected)


@pytest.mark.parametrize(("weights", "most"), [("INT8", 0.02), ("INT4", 0.15)])
@pytest.mark.parametrize("family", ["Bart", "M2M100", "Whisper"])
def test_weights_of_few_bits(family, weights, most):
    """Those of the encoder and of the first word are packed modules, those of later words lie in the graph."""
    model = make(family)
    mapping = ipex.quantization.get_weight_only_quant_qconfig_mapping(
        weight_dtype=ipex.quantization.WoqWeightDtype[weights]
    )
    optimized = llm.optimize(model, quantization_config=mapping)
    graph = optimized.__dict__["_compiled_call_impl"].captured.graph.inlined_graph
    kinds = [node.kind() for node in graph.nodes()]
    assert kinds.count("ipex::joined_linears_run") == 2  # query, key and value of a word's own attention
    assert kinds.count("ipex::weight_only_linear_run") == 2 * 5 + 1
    assert sum(isinstance(module, ipex.quantization.WeightOnlyLinear) for module in optimized.modules()) == 33
    x, begun = source(family), []
    for each in (model, optimized):
        encoded = each.get_encoder()(**x)
        how = {"encoder_outputs": encoded, "attention_mask": x.get("attention_mask")}
        first = each(decoder_input_ids=torch.tensor([[1], [1]]), **how)
        more = each(decoder_input_ids=torch.tensor([[7, 8], [5, 6]]), past_key_values=first.past_key_values, **how)
        begun.append(torch.cat([first.logits, more.logits], 1))
    assert 1e-4 < (begun[1] - begun[0]).norm() / begun[0].norm() < most
    assert optimized.generate(**x, max_new_tokens=8, do_sample=False).shape[0] == 2
    assert why_as_before(optimized) == BEGINS


OF_T5 = {"T5": {}, "gated T5": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, "MT5": {}, "UMT5": {}}


@pytest.mark.parametrize("weights", ["INT8", "INT4", "NF4", "FP8"])
@pytest.mark.parametrize("family", OF_T5)
def test_a_model_that_asks_for_the_dtype_of_a_weight(family, weights):
    """As T5 does, before its last linear. Tokens are those of the numbers that codes stand for."""
    model = make(family.split()[-1], **OF_T5[family])
    mapping = ipex.quantization.get_weight_only_quant_qconfig_mapping(
        weight_dtype=ipex.quantization.WoqWeightDtype[weights]
    )
    optimized = llm.optimize(model, quantization_config=mapping)
    assert not ipex.explain(optimized).declined
    codes = {n: m for n, m in optimized.named_modules() if isinstance(m, ipex.quantization.WeightOnlyLinear)}
    assert codes.keys() == {n for n, m in model.named_modules() if type(m) is torch.nn.Linear}
    for name, linear in codes.items():
        model.get_submodule(name).weight = torch.nn.Parameter(linear.weight.clone())
    model.get_input_embeddings().weight.data.copy_(optimized.get_input_embeddings().weight)
    how = {"max_new_tokens": 20, "do_sample": False, "no_repeat_ngram_size": 1, **source("T5")}
    expected = model.generate(**how)
    assert len(expected.unique()) > 8
    assert torch.equal(optimized.generate(**how), expected)
    assert why_as_before(optimized) == BEGINS


def test_codes_have_the_dtype_of_the_model():
    """Else T5 would go on in float32 behind the first of them."""
    model = make("T5")
    for parameter in model.parameters():
        parameter.data.div_(4)  # in bfloat16, large ones make noise of the logits
    mapping = ipex.quantization.get_weight_only_quant_qconfig_mapping()
    optimized = llm.optimize(model, dtype=torch.bfloat16, quantization_config=mapping)
    assert not ipex.explain(optimized).declined
    last = optimized.get_encoder().block[-1].layer[-1]
    assert isinstance(last.DenseReluDense.wo, ipex.quantization.WeightOnlyLinear)
    assert last(torch.randn(1, 3, 64, dtype=torch.bfloat16)).dtype == torch.bfloat16
