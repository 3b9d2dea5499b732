"""What an optimised language model generates is what the model itself does, by transformers' own `generate`."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch

import ipex

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from ipex import llm  # noqa: E402
from ipex.llm._codes import OfCodes  # noqa: E402
from llm.families import (  # noqa: E402
    FAMILIES,
    IS_NEW,
    LEFT,
    OWN_ATTENTION,
    VOCABULARY,
    make,
    prompts,
    quiet,  # noqa: F401
    words,
)

pytestmark = pytest.mark.filterwarnings("ignore")
CAPTURE = "capture of the step"


def captured(model: Any) -> Any:
    """The optimised model. Its calls have all run the graph when `ran_in_graph` looks."""
    result = llm.optimize(model, deployment_mode=False)
    assert result.__dict__["_compiled_call_impl"].reasons == set()
    return result


def ran_in_graph(model: Any) -> bool:
    return model.__dict__["_compiled_call_impl"].reasons == set()


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_and_beams_of_every_family(family):
    model = make(family)
    if family in LEFT and IS_NEW:
        with pytest.warns(UserWarning, match=f"the step of .* is not captured: .*{LEFT[family]}"):
            optimized = llm.optimize(model)
    else:
        optimized = captured(model) if IS_NEW else llm.optimize(model)
    for beams in (1, 3):
        how = {"max_new_tokens": 12, "do_sample": False, "num_beams": beams, **prompts()}
        expected = model.generate(**how)
        assert len(expected.unique()) > 8
        assert torch.equal(optimized.generate(**how), expected)
    (decision,) = [d for d in ipex.explain(optimized).decisions if d.pass_name == CAPTURE]
    assert not decision.applied or ran_in_graph(optimized)
    if not IS_NEW:
        return  # which models are captured, and how, is so of new versions
    assert decision.applied == (family not in LEFT)
    if decision.applied:
        graph = optimized.__dict__["_compiled_call_impl"].captured.graph.inlined_graph
        assert ("ipex::attend_cached" in str(graph)) == (family not in OWN_ATTENTION)
        assert OWN_ATTENTION.get(family, "attention is one op") in decision.reason


@pytest.mark.parametrize("family", ["Llama", "GPT2", "OPT", "Bloom"])
def test_positions_that_nobody_gives_are_the_models_own(family):
    """Those of OPT are places among the words that count."""
    model = make(family)
    optimized, given = captured(model), prompts()
    read, more = given["attention_mask"].bool(), words(2, 3, seed=1)
    longer = torch.nn.functional.pad(given["attention_mask"], (0, 3), value=1)
    ours, theirs = optimized(**given), model(**given)
    torch.testing.assert_close(ours.logits[read], theirs.logits[read], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(
        optimized(more, attention_mask=longer, past_key_values=ours.past_key_values).logits,
        model(more, attention_mask=longer, past_key_values=theirs.past_key_values).logits,
        rtol=1e-4,
        atol=1e-3,
    )
    assert ran_in_graph(optimized)


@pytest.mark.parametrize("family", ["Llama", "GPTJ", "Bloom"])
def test_long_texts_grow_the_cache(family):
    model = make(family, max_position_embeddings=512)
    optimized = captured(model)
    how = {"max_new_tokens": 300, "do_sample": False, **prompts()}
    assert torch.equal(optimized.generate(**how), model.generate(**how))


@pytest.mark.parametrize("family", ["Mistral", "Gemma2", "Gemma3", "GPTNeo"])
def test_windows_that_a_prompt_and_steps_outgrow(family):
    """Their windows are of 8 words."""
    model = make(family)
    optimized = captured(model)
    for count in (5, 8, 9, 20):
        how = {"max_new_tokens": 12, "do_sample": False, "input_ids": words(1, count)}
        assert torch.equal(optimized.generate(**how), model.generate(**how))
        padded = {**how, **prompts(2, count, slice(2))}
        assert torch.equal(optimized.generate(**padded), model.generate(**padded))
    assert ran_in_graph(optimized)


def test_sampling_streamers_and_guesses():
    model = make("Llama")
    optimized = captured(model)
    prompt = words(1, 10)
    for how in (
        {"do_sample": True, "temperature": 0.7, "top_k": 20},
        {"do_sample": False, "prompt_lookup_num_tokens": 3, "eos_token_id": VOCABULARY},  # 5.0 wants one
        {"do_sample": False, "num_return_sequences": 3, "num_beams": 3},
    ):
        found = []
        for each in (model, optimized):
            torch.manual_seed(1)
            found.append(each.generate(prompt, max_new_tokens=30, **how))
        assert torch.equal(*found)
    draft = make("Llama", num_hidden_layers=1)
    expected = model.generate(prompt, max_new_tokens=30, do_sample=False)
    for assistant in (draft, captured(draft)):
        assert torch.equal(
            optimized.generate(prompt, max_new_tokens=30, do_sample=False, assistant_model=assistant), expected
        )

    class Streamer(transformers.generation.BaseStreamer):
        def __init__(self):
            self.parts = []

        def put(self, value):
            self.parts.append(value.reshape(-1))

        def end(self):
            pass

    streamer = Streamer()
    result = optimized.generate(prompt, max_new_tokens=8, do_sample=False, streamer=streamer)
    assert torch.equal(torch.cat(streamer.parts), result[0])


def test_forward():
    model = make("Qwen3")
    optimized = captured(model)
    x = words(2, 9)
    for how in ({}, {"logits_to_keep": 2}, {"use_cache": False}, {"attention_mask": torch.ones(2, 9)}):
        ours, theirs = optimized(x, **how), model(x, **how)
        assert type(ours) is type(theirs)
        torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-4, atol=1e-3)
        assert (ours.past_key_values is None) == (theirs.past_key_values is None)
    ours, theirs = optimized(x), model(x)
    for layer, other in zip(ours.past_key_values.layers, theirs.past_key_values.layers):
        torch.testing.assert_close(layer.keys, other.keys, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(layer.values, other.values, rtol=1e-4, atol=1e-3)
    more = words(2, 4, seed=1)
    torch.testing.assert_close(
        optimized(more, past_key_values=ours.past_key_values).logits,
        model(more, past_key_values=theirs.past_key_values).logits,
        rtol=1e-4,
        atol=1e-3,
    )
    assert ran_in_graph(optimized)


def test_calls_that_the_graph_does_not_stand_for_run_the_model():
    model = make("Llama")
    optimized = captured(model)
    x = words(1, 6)
    result = optimized(x, output_hidden_states=True)
    assert len(result.hidden_states) == 3
    embedded = optimized(inputs_embeds=model.get_input_embeddings()(x))
    torch.testing.assert_close(embedded.logits, model(x).logits, rtol=1e-4, atol=1e-3)
    static = {"max_new_tokens": 5, "do_sample": False, "cache_implementation": "static"}
    assert torch.equal(optimized.generate(x, **static), model.generate(x, **static))
    with torch.enable_grad():
        assert optimized(x).logits.requires_grad
    reasons = optimized.__dict__["_compiled_call_impl"].reasons
    assert reasons >= {"it has output_hidden_states", "it has inputs_embeds", "gradients are enabled"}
    # A text that a call of the one kind began, one of the other goes on with.
    cache = optimized(x).past_key_values
    after = optimized(words(1, 2, seed=1), past_key_values=cache, output_hidden_states=True)
    expected = model(words(1, 2, seed=1), past_key_values=model(x).past_key_values)
    torch.testing.assert_close(after.logits, expected.logits, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("family", ["Llama", "GPTJ", "Bloom"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_16_bits(dtype, family):
    model = make(family)
    optimized = llm.optimize(model, dtype=dtype, deployment_mode=False)
    assert next(model.parameters()).dtype is torch.float32
    x = words(2, 9)
    logits = optimized(x).logits
    assert logits.dtype is dtype
    expected = copy.deepcopy(model).to(dtype)(x).logits.float()
    assert (logits.float() - expected).abs().max() <= 0.06 * expected.abs().max()
    assert optimized.generate(x, max_new_tokens=4).shape == (2, 13)
    assert ran_in_graph(optimized)


def test_in_16_bits_is_what_from_pretrained_makes(tmp_path):
    """Frequencies of a rotary embedding stay float32: rounded ones lead far positions elsewhere."""
    model = make("Llama")
    model.save_pretrained(tmp_path)
    expected = type(model).from_pretrained(tmp_path, dtype=torch.bfloat16).eval()
    optimized = llm.optimize(model, dtype=torch.bfloat16, deployment_mode=False)
    for name, buffer in expected.named_buffers():
        assert torch.equal(optimized.get_buffer(name), buffer)
    given = {"input_ids": words(2, 9), "position_ids": torch.arange(4000, 4009).expand(2, 9)}
    wanted = expected(**given).logits
    assert (optimized(**given).logits - wanted).abs().max() <= 0.06 * wanted.abs().max()
    assert ran_in_graph(optimized)


@pytest.mark.parametrize("family", ["Llama", "Mixtral", "GPT2", "Gemma", "Falcon", "XGLM"])
def test_weights_are_let_go_of(family):
    model = make(family)
    optimized = llm.optimize(model)
    if "_compiled_call_impl" not in optimized.__dict__ and not IS_NEW:
        pytest.skip(f"transformers {transformers.__version__}: the step of {family} is not captured")
    held = sum(p.untyped_storage().nbytes() for p in optimized.parameters())
    assert held < 0.1 * sum(p.untyped_storage().nbytes() for p in model.parameters())
    how = {"max_new_tokens": 8, "do_sample": False, **prompts()}
    assert torch.equal(optimized.generate(**how), model.generate(**how))
    message = "Pass deployment_mode=False to keep them"
    for needs_them in (
        lambda: optimized(words(1, 3), output_hidden_states=True),
        lambda: optimized.state_dict(),
        lambda: copy.deepcopy(optimized),
        lambda: pickle.dumps(optimized),
        lambda: torch.save(optimized, io.BytesIO()),
        lambda: optimized.base_model(words(1, 3)),
    ):
        with pytest.raises(RuntimeError, match=message):
            needs_them()
    with torch.enable_grad(), pytest.raises(RuntimeError, match=r"gradients are enabled. Call it under torch.no_grad"):
        optimized(words(1, 3))
    with pytest.raises(RuntimeError, match=r"the model is in training mode. Call eval\(\) on it"):
        optimized.train()(words(1, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("weights", "most"), [("INT8", 0.05), ("INT4", 0.3), ("NF4", 0.3), ("FP8", 0.1)])
def test_weights_of_few_bits(weights, most, dtype):
    model = make("Llama", hidden_size=256, intermediate_size=512)
    config = ipex.quantization.get_weight_only_quant_qconfig_mapping(
        weight_dtype=getattr(ipex.quantization.WoqWeightDtype, weights)
    )
    optimized = llm.optimize(model, dtype=dtype, quantization_config=config)
    graph = optimized.__dict__["_compiled_call_impl"].captured.graph.inlined_graph
    kinds = [node.kind() for node in graph.nodes()]
    assert kinds.count("ipex::joined_linears_run") == 2 * 2  # query, key and value; gate and up
    assert kinds.count("ipex::weight_only_linear_run") == 2 * 2 + 1
    x = words(2, 9)
    expected = model(x).logits
    difference = (optimized(x).logits.float() - expected).norm() / expected.norm()
    assert 1e-4 < difference < most + (0.03 if dtype is torch.bfloat16 else 0)
    assert optimized.generate(x, max_new_tokens=4, pad_token_id=0).shape == (2, 13)
    assert ran_in_graph(optimized)


@pytest.mark.parametrize(("weights", "most"), [("INT8", 0.1), ("INT4", 0.4)])
def test_experts_of_few_bits(weights, most):
    config = ipex.quantization.get_weight_only_quant_qconfig_mapping(
        weight_dtype=getattr(ipex.quantization.WoqWeightDtype, weights)
    )
    model = make("Mixtral")
    optimized = llm.optimize(model, quantization_config=config)
    assert not ipex.explain(optimized).declined
    graph = optimized.__dict__["_compiled_call_impl"].captured.graph.inlined_graph
    assert [node.kind() for node in graph.nodes()].count("ipex::grouped_linear_run") == 2 * 2
    x = words(2, 9)
    expected = model(x).logits
    difference = (optimized(x).logits - expected).norm() / expected.norm()
    assert 1e-4 < difference < most
    assert optimized.generate(x, max_new_tokens=4, pad_token_id=0).shape == (2, 13)
    assert ran_in_graph(optimized)


@pytest.mark.parametrize(("mode", "most"), [("NONE", 1e-5), ("BF16", 1e-3), ("FP16", 1e-3), ("INT8", 0.05)])
def test_inputs_of_few_bits(mode, most):
    """Those of linears, which the graph rounds, and the model as it is does not."""
    quantization = ipex.quantization
    model = make("Llama", hidden_size=256, intermediate_size=512)
    how = {"weight_dtype": quantization.WoqWeightDtype.INT8, "group_size": 32}
    exact, optimized = (
        llm.optimize(
            model,
            quantization_config=quantization.get_weight_only_quant_qconfig_mapping(
                lowp_mode=quantization.WoqLowpMode[each], **how
            ),
        )
        for each in ("NONE", mode)
    )
    x = words(2, 9)
    expected = exact(x).logits
    difference = (optimized(x).logits - expected).norm() / expected.norm()
    assert difference < most
    has_digits = ipex.isa.has_avx512_vnni() or ipex.isa.has_avx2_vnni()
    assert difference > most / 1000 or mode == "NONE" or not has_digits
    assert ran_in_graph(optimized)


class CutsAtThree(torch.nn.Linear):
    """A trace keeps the count of the words it saw, three, as a number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x[:, : int(x.shape[1])])


def test_layers_hold_codes_where_the_step_is_not_captured():
    model = make("GPTJ")
    model.lm_head = CutsAtThree(64, VOCABULARY)
    mapping = ipex.quantization.get_weight_only_quant_qconfig_mapping(
        weight_dtype=ipex.quantization.WoqWeightDtype.INT4
    )
    with pytest.warns(UserWarning, match="is not captured"):
        optimized = llm.optimize(model, quantization_config=mapping)
    assert isinstance(optimized.transformer.h[0].mlp.fc_in, ipex.quantization.WeightOnlyLinear)
    for name, module in list(model.named_modules()):  # the same numbers in floats
        of_codes = optimized.get_submodule(name)
        if type(module) in (torch.nn.Linear, torch.nn.Embedding):
            module.weight.data = of_codes.weight.clone()
    how = {"max_new_tokens": 8, "do_sample": False, **prompts()}
    assert torch.equal(optimized.generate(**how), model.generate(**how))
    assert "its layers hold codes" in {d.reason for d in ipex.explain(optimized).applied}


@pytest.mark.parametrize("name", ["Olmo", "Mamba", "Jamba"])
def test_codes_without_other_parameters_or_without_a_step(name):
    """Olmo has no weights but those of linears; the others have layers of which no step is captured."""
    mapping = ipex.quantization.get_weight_only_quant_qconfig_mapping(group_size=32)
    model, how = make(name), {"max_new_tokens": 8, "do_sample": False, **prompts()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimized = llm.optimize(model, quantization_config=mapping)
    assert ("capture of the step" in {d.pass_name for d in ipex.explain(optimized).declined}) == (name != "Olmo")
    of_codes = [n for n, m in optimized.named_modules() if isinstance(m, OfCodes)]
    assert len(of_codes) > 3
    for part in of_codes:
        module, _, own = part.rpartition(".")
        held = getattr(model.get_submodule(module), own)  # of experts a parameter
        (held if isinstance(held, torch.nn.Parameter) else held.weight).data = optimized.get_submodule(
            part
        ).weight.clone()
    assert torch.equal(optimized.generate(**how), model.generate(**how))


def test_layers_that_the_model_cannot_read_as_codes_stay():
    class WritesTo(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.inner.fc_in.weight.mul_(1)
            return self.inner(x)

    model = make("GPTJ")
    model.transformer.h[1].mlp = WritesTo(model.transformer.h[1].mlp)
    mapping = ipex.quantization.get_weight_only_quant_qconfig_mapping(
        weight_dtype=ipex.quantization.WoqWeightDtype.INT4
    )
    with pytest.warns(UserWarning, match="is not captured"):
        optimized = llm.optimize(model, quantization_config=mapping)
    how = {"max_new_tokens": 8, "do_sample": False, **prompts()}
    with torch.no_grad():
        assert torch.equal(optimized.generate(**how), model.generate(**how))
    assert "quantization_config" in {d.pass_name for d in ipex.explain(optimized).declined}


def test_a_graph_that_computes_something_else_is_not_used():
    """Python that asks for a length answers once, while it is traced."""
    model = make("GPTNeo")
    attention = model.transformer.h[1].attn.attention
    own = attention._attn

    def forgets(query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        return own(query, key, value if key.shape[2] < 20 else value * 0.5, mask)

    attention._attn = forgets
    with pytest.warns(UserWarning, match="with its own attention, its step computes other logits"):
        optimized = llm.optimize(model)
    how = {"max_new_tokens": 20, "do_sample": False, **prompts()}
    assert torch.equal(optimized.generate(**how), model.generate(**how))


def test_in_place_and_not():
    model = make("Llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert llm.optimize(model) is not model
    assert "_compiled_call_impl" not in model.__dict__
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert llm.optimize(model, inplace=True) is model


def test_training_models_are_returned_as_they_are():
    model = make("Llama").train()
    with pytest.warns(UserWarning, match=r"Call model.eval\(\) first"):
        assert llm.optimize(model) is model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(UserWarning, match="for training use ipex.optimize"):
        assert llm.optimize(model, optimizer) == (model, optimizer)


def test_bad_arguments():
    model = make("Llama")
    for other, kind in ((3, "int"), (torch.nn.Linear(2, 2).eval(), "Linear")):
        with pytest.raises(
            TypeError, match=f"expected a model of transformers, got {kind}. Load it with from_pretrained"
        ):
            llm.optimize(other)
    for wrong, message in (
        ({"dtype": torch.int8}, "expected one of torch.float32, .* in dtype, got torch.int8"),
        ({"dtype": "bfloat16"}, "expected one of .* in dtype, got 'bfloat16'"),
        ({"device": "cuda"}, "expected device='cpu', got 'cuda'"),
        ({"quantization_config": 4}, "expected what ipex.quantization.get_weight_only_quant_qconfig_mapping or"),
        ({"qconfig_summary_file": "x"}, "expected the recipe of the calibration in quantization_config beside"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            llm.optimize(model, **wrong)


@pytest.mark.parametrize("family", ["Llama", "GPTJ"])
def test_a_mask_that_does_not_fit_is_refused(family):
    optimized = captured(make(family))
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match=r"expected attended of \[batch, 6\]"):
        optimized(words(1, 6), attention_mask=torch.tensor([[0, 1, 1, 1]]))


def test_import_ipex_does_not_import_transformers():
    code = "import sys, ipex; was = 'transformers' in sys.modules; ipex.llm.optimize; sys.exit(was)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_a_model_that_sees_images_keeps_what_the_graph_has_not():
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    vision = CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8
    )
    text = LlamaConfig(**FAMILIES["Llama"])
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=VOCABULARY - 1)
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration(config).eval()
    optimized = llm.optimize(model)
    prompt = torch.cat([torch.full((1, 4), VOCABULARY - 1), words(1, 5) % (VOCABULARY - 2)], 1)
    how = {"input_ids": prompt, "pixel_values": torch.randn(1, 3, 16, 16), "max_new_tokens": 8, "do_sample": False}
    assert torch.equal(optimized.generate(**how), model.generate(**how))
    (reason,) = optimized.__dict__["_compiled_call_impl"].reasons  # the first call's: the others run the graph
    assert reason in ("it has pixel_values", "it has mm_encoder_outputs")


def test_words_that_the_model_itself_has_kept():
    model = make("Llama")
    optimized = captured(model)
    cache = model(words(2, 5)).past_key_values
    expected = model(words(2, 3, seed=1), past_key_values=copy.deepcopy(cache)).logits
    found = optimized(words(2, 3, seed=1), past_key_values=cache).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
    assert ran_in_graph(optimized)
    assert cache.get_seq_length() == 8


def test_positions_of_three_axes_run_the_model():
    model = make("Llama")
    optimized = captured(model)
    with pytest.raises(RuntimeError):
        optimized(words(1, 3), position_ids=torch.zeros(3, 1, 3, dtype=torch.long))
    assert "position_ids that are not of [batch, words]" in optimized.__dict__["_compiled_call_impl"].reasons
