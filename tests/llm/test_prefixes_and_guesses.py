"""What saves steps by transformers' own switches: a prefix that is read once, and guesses of several tokens."""

from __future__ import annotations

import copy

import pytest
import torch

import ipex

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from llm.families import VOCABULARY, make, quiet, words  # noqa: E402, F401

pytestmark = pytest.mark.filterwarnings("ignore")
FAMILIES = ["Llama", "Mistral", "GPT2", "GPTJ", "Bloom"]
PREFIX = words(1, 20)  # longer than the window of Mistral


def after(prefix: torch.Tensor, count: int, seed: int) -> torch.Tensor:
    return torch.cat([prefix.expand(count, -1), words(count, 5, seed)], 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prefix_is_read_once_for_many_texts(family):
    model = make(family)
    optimized = ipex.llm.optimize(model)
    how = {"max_new_tokens": 10, "do_sample": False}
    prefix = optimized(PREFIX, past_key_values=transformers.DynamicCache()).past_key_values
    seen = []
    for each in range(3):
        cache, text = copy.deepcopy(prefix), after(PREFIX, 1, seed=each)
        expected = model.generate(text, **how)
        assert torch.equal(optimized.generate(text, past_key_values=cache, **how), expected)
        seen.append((prefix.get_seq_length(), cache.get_seq_length()))
    assert seen == [(20, 20 + 5 + 9)] * 3


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prefix_is_read_once_for_a_batch(family):
    model = make(family)
    optimized = ipex.llm.optimize(model)
    cache = optimized(PREFIX, past_key_values=transformers.DynamicCache()).past_key_values
    cache.batch_repeat_interleave(3)
    text, how = after(PREFIX, 3, seed=0), {"max_new_tokens": 10, "do_sample": False}
    assert torch.equal(optimized.generate(text, past_key_values=cache, **how), model.generate(text, **how))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("guesses", ["of the text", "of a model"])
def test_guesses_change_no_token(family, guesses):
    model, x = make(family), after(PREFIX, 1, seed=0)
    optimized = ipex.llm.optimize(model)
    if guesses == "of the text":
        how = {"prompt_lookup_num_tokens": 3, "eos_token_id": VOCABULARY}  # transformers 5.0 wants one
    else:
        how = {"assistant_model": ipex.llm.optimize(make(family, num_hidden_layers=1, num_layers=1, n_layer=1))}
    steps = []
    call = optimized.__dict__["_compiled_call_impl"]
    run = call._step
    call._step = lambda cache, words, kwargs: steps.append(words.shape[1]) or run(cache, words, kwargs)
    found = optimized.generate(x, max_new_tokens=30, do_sample=False, **how)
    assert torch.equal(found, model.generate(x, max_new_tokens=30, do_sample=False))
    assert max(steps[1:]) > 1  # several at once
