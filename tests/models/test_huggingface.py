"""Models of transformers with their default configuration: what they take and give stays theirs."""

import copy

import pytest
import torch

import ipex

pytestmark = pytest.mark.filterwarnings("ignore")
transformers = pytest.importorskip("transformers")
IDS = torch.arange(14).reshape(2, 7) % 11


def small(kind, **sizes):
    names = dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    return kind(**(names | sizes))


def bert():
    return transformers.BertForSequenceClassification(small(transformers.BertConfig))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=2))


def mistral():  # its cache counts tokens
    config = small(transformers.MistralConfig, num_key_value_heads=2, sliding_window=4)
    return transformers.MistralForCausalLM(config)


@pytest.mark.parametrize("make", [bert, gpt2, mistral])
@pytest.mark.parametrize("kind", [dict, transformers.BatchEncoding])
def test_outputs_and_caches(make, kind):
    model = make().eval()
    given = kind({"input_ids": IDS, "attention_mask": torch.ones_like(IDS)})
    optimized = ipex.jit_optimize(model, given)
    shorter = {name: value[:, :5] for name, value in given.items()}
    for module in (optimized, copy.deepcopy(optimized)):
        assert ipex.verify(model, module, given)
        assert ipex.verify(model, module, shorter)
        with torch.no_grad():
            found, expected = module(**shorter), model(**shorter)
        assert type(found) is type(expected)
        assert type(found.get("past_key_values")) is type(expected.get("past_key_values"))
    if "past_key_values" in expected:
        assert found.past_key_values.get_seq_length() == 5


def test_a_cache_is_no_input():
    model = gpt2().eval()
    cache = model(IDS).past_key_values
    with pytest.raises(
        TypeError, match=r"got: DynamicCache at past_key_values. Leave the cache out; ipex.llm.optimize"
    ):
        ipex.jit_optimize(model, {"input_ids": IDS[:, :1], "past_key_values": cache})
