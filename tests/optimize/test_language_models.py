"""transformers' language models in 16 bits by `ipex.optimize`, with and without autocast."""

from __future__ import annotations

import contextlib

import pytest
import torch

import ipex

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")
SIZES = {"vocab_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
LLAMA = {**SIZES, "hidden_size": 32, "intermediate_size": 48}
MODELS = {
    "GPT2LMHeadModel": {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
    "LlamaForCausalLM": LLAMA,
    "LlamaForCausalLM tied": {**LLAMA, "tie_word_embeddings": True},  # as SmolLM2
    "OPTForCausalLM": {**SIZES, "hidden_size": 32, "word_embed_proj_dim": 16, "ffn_dim": 48},
    "AlbertForMaskedLM": {**SIZES, "embedding_size": 16, "hidden_size": 32, "intermediate_size": 48},
    "BertForMaskedLM": LLAMA,
}


@pytest.fixture(autouse=True)
def _quiet():
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    with torch.no_grad():
        yield
    transformers.logging.set_verbosity(level)


@pytest.mark.parametrize("is_autocast", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_what_is_generated(name, dtype, is_autocast):
    torch.manual_seed(0)
    kind = getattr(transformers, name.split()[0])
    model = kind(kind.config_class(bos_token_id=1, eos_token_id=2, **MODELS[name])).eval()
    inputs = {"input_ids": torch.randint(3, 64, (2, 7)), "attention_mask": torch.ones(2, 7, dtype=torch.long)}
    optimized = ipex.optimize(model, dtype=dtype)
    with torch.autocast("cpu", dtype) if is_autocast else contextlib.nullcontext():
        logits = optimized(**inputs).logits
        assert logits.dtype == (dtype if is_autocast else torch.float32)
        if model.can_generate():
            assert optimized.generate(**inputs, max_new_tokens=4, min_new_tokens=4).shape == (2, 11)
    expected = model(**inputs).logits
    assert (logits - expected).abs().max() < {torch.bfloat16: 2**-5, torch.float16: 2**-8}[dtype] * expected.abs().max()
