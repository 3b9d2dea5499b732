"""Keys and values that are kept in 8 bits, `kv_cache_dtype`: near what floats give, and a quarter of their memory."""

from __future__ import annotations

import copy

import pytest
import torch

import ipex

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from ipex import llm  # noqa: E402
from ipex.llm._cache import RoomyLayer  # noqa: E402
from llm.families import IS_NEW, make, prompts, quiet, words  # noqa: E402, F401

pytestmark = pytest.mark.filterwarnings("ignore")
DTYPES = [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2]
CODES = pytest.mark.parametrize("codes", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
ONE_OP = ["Llama", "Mistral", "GPT2", "Qwen3", "OPT"]  # Mistral's window is of 8 words
# Half a step in keys and in values of two layers: of integers, half a step of the largest of a row everywhere; of
# floats, at most so much of each number, and mostly less.
OFF = {torch.int8: 4 * 0.5 / 127, torch.float8_e4m3fn: 2 * 2.0**-4, torch.float8_e5m2: 2 * 2.0**-3}


def decision(model, knob: str = "kv_cache_dtype"):
    (found,) = [each for each in ipex.explain(model).decisions if each.pass_name == knob]
    return found


@CODES
@pytest.mark.parametrize("family", ONE_OP)
def test_logits_are_near_those_of_floats(family, codes):
    model = make(family)
    optimized = llm.optimize(model, kv_cache_dtype=codes)
    text, past = prompts()["input_ids"], transformers.DynamicCache()
    found = [optimized(part, past_key_values=past).logits for part in text.split([7, 1, 1, 3], 1)]
    expected = model(text).logits
    difference = (torch.cat(found, 1) - expected).abs().max() / expected.abs().max()
    assert 0 < difference < OFF[codes]
    assert all(layer.codes is codes for layer in past.layers)
    assert decision(optimized).applied
    assert str(codes) in decision(optimized).reason


@pytest.mark.parametrize("beams", [1, 3])
def test_most_tokens_are_those_of_floats(beams):
    same = []
    for family in ONE_OP:
        model = make(family)
        how = {"max_new_tokens": 12, "do_sample": False, "num_beams": beams, **prompts()}
        expected, found = model.generate(**how), llm.optimize(model, kv_cache_dtype=torch.int8).generate(**how)
        assert found.shape == expected.shape
        same += (found == expected)[:, 12:].flatten().tolist()
    assert sum(same) > 0.8 * len(same)


@CODES
def test_bytes_of_a_word(codes):
    heads, numbers = 2, 16
    layers = []
    for kept in (None, codes):
        layer = RoomyLayer(codes=kept)
        x = torch.randn(1, heads, 5, numbers)
        layer.update(x, x)
        layers.append(layer._memory.nbytes // layer._memory.shape[2])
    assert layers == [heads * 2 * numbers * 4, heads * 2 * (numbers + 4)]


@CODES
def test_memory_that_grows_and_is_reordered_keeps_words(codes):
    layer = RoomyLayer(codes=codes)
    layer.update(*(torch.randn(2, 2, 5, 16) for _ in range(2)))
    keys, values = layer.keys, layer.values
    layer.room(500)
    assert torch.equal(layer.keys, keys)
    assert torch.equal(layer.values, values)
    layer.reorder_cache(torch.tensor([1, 0]))
    assert torch.equal(layer.keys, keys.flip(0))
    assert torch.equal(layer.values, values.flip(0))


@CODES
def test_the_models_own_code_writes_what_the_step_writes(codes):
    """As where hidden states are asked for."""
    model = make("Llama")
    optimized = llm.optimize(model, kv_cache_dtype=codes, deployment_mode=False)
    call = optimized.__dict__["_compiled_call_impl"]
    text, more = words(2, 9), words(2, 2, seed=1)
    by_step = optimized(text).past_key_values
    by_model = copy.deepcopy(by_step)
    by_step = optimized(more, past_key_values=by_step)
    assert not call.reasons
    by_model = optimized(more, past_key_values=by_model, output_hidden_states=True)
    assert call.reasons == {"it has output_hidden_states"}
    torch.testing.assert_close(by_model.logits, by_step.logits, rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(by_step.past_key_values.layers, by_model.past_key_values.layers):
        assert ours.keys.dtype is torch.float32
        assert ours.codes is theirs.codes is codes
        torch.testing.assert_close(ours.keys[0], theirs.keys[0], rtol=0, atol=ours.keys.abs().max().item() * OFF[codes])


@CODES
@pytest.mark.parametrize("family", ["Llama", "Mistral", "GPT2"])
def test_prefixes_guesses_and_batches(family, codes):
    model = llm.optimize(make(family), kv_cache_dtype=codes)
    prefix, question = words(1, 20), words(1, 5, seed=1)
    how = {"max_new_tokens": 10, "do_sample": False}
    text = torch.cat([prefix, question], 1)
    expected = model.generate(text, **how)
    # Read in two parts, as a part that is copied, and for several texts.
    read = model(prefix, past_key_values=transformers.DynamicCache()).past_key_values
    assert torch.equal(model.generate(text, past_key_values=copy.deepcopy(read), **how), expected)
    several = copy.deepcopy(read)
    several.batch_repeat_interleave(3)
    found = model.generate(text.expand(3, -1), past_key_values=several, **how)
    assert torch.equal(found, expected.expand(3, -1))
    # What was cropped leaves no trace.
    cropped = model(question, past_key_values=copy.deepcopy(read)).past_key_values
    cropped.crop(-question.shape[1])
    assert cropped.get_seq_length() == prefix.shape[1]
    assert torch.equal(model.generate(text, past_key_values=cropped, **how), expected)
    assert torch.equal(model.generate(text, prompt_lookup_num_tokens=3, eos_token_id=149, **how), expected)
    draft = llm.optimize(make(family, num_hidden_layers=1, num_layers=1, n_layer=1), kv_cache_dtype=codes)
    assert torch.equal(model.generate(text, assistant_model=draft, **how), expected)


@CODES
def test_texts_side_by_side(codes):
    """As the server joins them, each with its own length."""
    layers = []
    for count in (3, 6):
        layer = RoomyLayer(codes=codes)
        layer.update(*(torch.randn(1, 2, count, 8) for _ in range(2)))
        layers.append((layer, 0, count))
    joined = RoomyLayer.of_texts(layers)
    assert joined.codes is codes
    assert joined.length == 6
    for number, (layer, row, count) in enumerate(layers):
        for ours, theirs in ((joined.keys, layer.keys), (joined.values, layer.values)):
            assert torch.equal(ours[number, :, 6 - count :], theirs[row])
            assert not ours[number, :, : 6 - count].any()


def test_in_bfloat16():
    model = make("Llama")
    optimized = llm.optimize(model, dtype=torch.bfloat16, kv_cache_dtype=torch.int8)
    result = optimized(words(2, 9))
    expected = model(words(2, 9)).logits
    assert result.logits.dtype is torch.bfloat16
    assert result.past_key_values.layers[0].keys.dtype is torch.bfloat16
    assert (result.logits - expected).abs().max() < 2**-5 * expected.abs().max()


@pytest.mark.skipif(not IS_NEW, reason="which models are captured is so of new versions")
@pytest.mark.parametrize(
    ("family", "reason"),
    [("Bloom", "attention is its own: some of its layers"), ("Mamba", "its step is not captured")],
)
def test_what_stays_in_floats_says_why(family, reason):
    model = make(family)
    optimized = llm.optimize(model, kv_cache_dtype=torch.int8)
    assert not decision(optimized).applied
    assert reason in decision(optimized).reason
    how = {"max_new_tokens": 5, "do_sample": False, **prompts()}
    assert torch.equal(optimized.generate(**how), model.generate(**how))


def test_an_encoder_says_why():
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(vocab_size=60, **sizes, **heads)).eval()
    assert decision(llm.optimize(model, kv_cache_dtype=torch.int8)).reason == "it has an encoder"


@pytest.mark.parametrize("wrong", [torch.float32, torch.uint8, "int8", 8])
def test_another_dtype_is_refused(wrong):
    with pytest.raises(ValueError, match="expected None or one of .* in kv_cache_dtype, got .* Leave it out"):
        llm.optimize(make("Llama"), kv_cache_dtype=wrong)
