"""Rotary embeddings whose frequencies the length of the text decides: a captured step chooses as the model does."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

import transformers

import ipex
from ipex import llm

LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.5, 2.0, 2.5],
    "long_factor": [1.0, 4.0, 9.0, 30.0],
    "original_max_position_embeddings": 12,
}
SIZES = {
    "vocab_size": 90,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "original_max_position_embeddings": 12,
    "pad_token_id": 0,
    "initializer_range": 0.2,  # attention that hangs on positions
}


@pytest.mark.parametrize("family", ["Phi3", "Llama"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_short_and_long_texts(family, dtype):
    config = getattr(transformers, f"{family}Config")(**SIZES, rope_parameters=LONG)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval().to(dtype)
    optimized = llm.optimize(model, dtype=dtype)
    assert not ipex.explain(optimized).declined
    assert type(model.model.rotary_emb).__name__ == f"{family}RotaryEmbedding"
    with torch.no_grad():
        for count in (5, 12, 13, 30, 7):  # short ones again, after long ones
            words = torch.randint(0, 90, (2, count), generator=torch.Generator().manual_seed(count))
            expected = model(words).logits
            difference = (optimized(words).logits - expected).norm() / expected.norm()
            assert difference < (1e-4 if dtype == torch.float32 else 0.05)


def test_the_length_where_frequencies_change_is_in_the_text():
    """A text that grows beyond it by `generate`; Phi3's own generate reads it anew there."""
    model = transformers.Phi3ForCausalLM(transformers.Phi3Config(**SIZES, rope_parameters=LONG)).eval()
    optimized = llm.optimize(model)
    words = torch.randint(1, 90, (2, 9), generator=torch.Generator().manual_seed(0))
    how = {"max_new_tokens": 10, "do_sample": False, "eos_token_id": None}
    assert torch.equal(optimized.generate(words, **how), model.generate(words, **how))
    assert not optimized.__dict__["_compiled_call_impl"].reasons


def test_an_embedding_that_computes_something_else_stays():
    """PhiMoE has a factor for long texts, too."""
    config = transformers.PhimoeConfig(
        **SIZES, rope_parameters={**LONG, "short_mscale": 1.0, "long_mscale": 1.3}, num_local_experts=2
    )
    model = transformers.PhimoeForCausalLM(config).eval()
    with pytest.warns(UserWarning, match="step of PhimoeForCausalLM is not captured"):
        llm.optimize(model)
