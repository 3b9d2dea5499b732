"""Attention, norms and activations as transformers writes them, on tiny models with random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_same, kinds

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
# The class, its configuration, and what a layer of it becomes.
MODELS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "Bert": ("BertModel", SIZES, ("attention", "layer_norm.of_sum")),
    "DistilBert": ("DistilBertModel", {"dim": 32, "n_layers": 1, "n_heads": 4, "hidden_dim": 64}, ("attention",)),
    "ViT": ("ViTModel", {**SIZES, "image_size": 16, "patch_size": 8}, ("attention", "layer_norm.of_sum")),
    "GPT2": ("GPT2Model", {"n_embd": 32, "n_layer": 1, "n_head": 4}, ("attention", "layer_norm.of_sum")),
    "T5": (
        "T5EncoderModel",
        {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "feed_forward_proj": "gated-gelu"},
        ("attention", "rms_norm"),
    ),
    "Llama": ("LlamaModel", {**SIZES, "num_key_value_heads": 2}, ("attention", "rms_norm")),
}


class HiddenStates(nn.Module):
    """The first result of a model, which takes its inputs by name."""

    def __init__(self, name: str, implementation: str) -> None:
        super().__init__()
        model, sizes, _ = MODELS[name]
        if name != "ViT":
            sizes = {**sizes, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2}
        config = getattr(transformers, f"{name}Config")(**sizes, attn_implementation=implementation)
        self.model = getattr(transformers, model)(config)
        self.names = ["pixel_values"] if name == "ViT" else ["input_ids", "attention_mask"]
        self.options = {"use_cache": False} if name in ("GPT2", "Llama") else {}

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, inputs)), **self.options, return_dict=False)[0]


def inputs_of(name: str) -> list[tuple[Tensor, ...]]:
    """Inputs for the trace, then others: with padding, and with a row that is all padding."""
    if name == "ViT":
        return [(torch.randn(2, 3, 16, 16),), (torch.randn(1, 3, 16, 16),)]
    tokens, mask = torch.randint(0, 50, (2, 8)), torch.ones(2, 8, dtype=torch.long)
    padded, empty = mask.clone(), mask.clone()
    padded[0, 5:] = 0
    empty[1] = 0
    return [(tokens, mask), (tokens, padded), (tokens, empty), (tokens[:1, :6], mask[:1, :6])]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "implementation"), [*((name, "eager") for name in MODELS), ("Bert", "sdpa")])
def test_matches_eager(name, implementation):
    torch.manual_seed(0)
    model = HiddenStates(name, implementation).eval()
    inputs = inputs_of(name)
    with torch.no_grad():
        traced = torch.jit.trace(model, inputs[0], check_trace=False)
        optimized = ipex.jit_optimize(traced)
        for each in inputs:
            assert_same(optimized(*each), model(*each))
    found = kinds(optimized)
    assert not {"aten::softmax", "aten::rsqrt"} & found.keys()
    if implementation == "eager":
        for op in MODELS[name][2]:
            assert found[f"ipex::{op}"] >= 1
