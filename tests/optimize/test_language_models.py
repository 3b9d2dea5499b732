"""transformers' language models in 16 bits by `ipex.optimize`, with and without autocast."""

from __future__ import annotations

import contextlib

import pytest
import torch

import ipex
from ipex._optimize.packed.source import PackedParameter
from llm.families import VOCABULARY, prompts, quiet, words  # noqa: F401
from support import assert_same

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

TOLERANCE = {None: 1e-5, torch.bfloat16: 2**-5, torch.float16: 2**-8}
pytestmark = pytest.mark.filterwarnings("ignore")
SIZES = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "num_attention_heads": 2}
LLAMA = {**SIZES, "hidden_size": 32, "intermediate_size": 48}
MODELS = {
    "GPT2LMHeadModel": {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "LlamaForCausalLM": LLAMA,
    "LlamaForCausalLM tied": {**LLAMA, "tie_word_embeddings": True},  # as SmolLM2
    "OPTForCausalLM": {**SIZES, "hidden_size": 32, "word_embed_proj_dim": 16, "ffn_dim": 48},
    "AlbertForMaskedLM": {**SIZES, "embedding_size": 16, "hidden_size": 32, "intermediate_size": 48},
    "BertForMaskedLM": LLAMA,
}


@pytest.mark.parametrize("is_autocast", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_what_is_generated(name, dtype, is_autocast):
    torch.manual_seed(0)
    kind = getattr(transformers, name.split()[0])
    model = kind(kind.config_class(bos_token_id=1, eos_token_id=2, **MODELS[name])).eval()
    inputs = prompts(count=7, padding=slice(0))
    optimized = ipex.optimize(model, dtype=dtype)
    with torch.autocast("cpu", dtype) if is_autocast else contextlib.nullcontext():
        logits = optimized(**inputs).logits
        assert logits.dtype == (dtype if is_autocast else torch.float32)
        if model.can_generate():
            assert optimized.generate(**inputs, max_new_tokens=4, min_new_tokens=4).shape == (2, 11)
    expected = model(**inputs).logits
    assert (logits - expected).abs().max() < TOLERANCE[dtype] * expected.abs().max()


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_the_transposed_linears_of_gpt2_are_packed(dtype):
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**MODELS["GPT2LMHeadModel"])).eval()
    optimized, tokens = ipex.optimize(model, dtype=dtype), words(2, 7)
    linears = {name: m for name, m in model.named_modules() if type(m).__name__ == "Conv1D"}
    assert len(linears) == 8
    packed = {d.node: d.reason for d in ipex.explain(optimized).applied if d.pass_name == "weights_prepack"}
    assert {name: packed.get(name) for name in linears} == dict.fromkeys(linears, "packed")
    for name, linear in linears.items():
        x = torch.randn(3, linear.weight.shape[0])
        expected, layer = linear(x), optimized.get_submodule(name)
        assert_same(layer(x), expected, TOLERANCE[dtype])
        assert isinstance(layer.weight, PackedParameter)
        assert layer.weight.dtype == (dtype or torch.float32)
        assert isinstance(layer, type(linear))
    expected, state = optimized(tokens).logits, optimized.state_dict()
    before = model.state_dict()
    assert {n: (t.shape, t.stride(), t.dtype) for n, t in state.items()} == {
        n: (t.shape, t.stride(), t.dtype) for n, t in before.items()
    }
    assert all(torch.allclose(state[name], t, rtol=0 if dtype is None else 2**-8, atol=0) for name, t in before.items())
    other = ipex.optimize(transformers.GPT2LMHeadModel(model.config).eval(), dtype=dtype)
    other.load_state_dict(state)
    assert torch.equal(other(tokens).logits, expected)


def test_a_layer_that_derives_from_one_and_computes_otherwise_stays():
    class Halved(transformers.pytorch_utils.Conv1D):
        def forward(self, x):
            return super().forward(x) / 2

    optimized = ipex.optimize(torch.nn.Sequential(Halved(6, 4)).eval())
    assert type(optimized[0]) is Halved
    declined = [d.reason for d in ipex.explain(optimized).declined if d.pass_name == "weights_prepack"]
    assert declined == ["Halved.forward may do something else than the class it derives from"]
