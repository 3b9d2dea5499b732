"""Small random language models of transformers, one of each family."""

from __future__ import annotations

import warnings
from importlib.metadata import version
from typing import Any

import pytest
import torch

VOCABULARY = 150
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
_SHARED = {**_SIZES, "num_key_value_heads": 2}
_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}

# The class before ForCausalLM, and what its configuration needs.
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": _SHARED,
    "Mistral": {**_SHARED, "sliding_window": 8},
    "Mixtral": {**_SHARED, **_EXPERTS},
    "Qwen2": _SHARED,
    "Qwen3": {**_SHARED, "head_dim": 16},
    "Qwen3Moe": {**_SHARED, **_EXPERTS, "head_dim": 16},
    "Phi": _SIZES,
    "Phi3": _SHARED,
    "Gemma": {**_SHARED, "head_dim": 16},
    "Gemma2": {**_SHARED, "head_dim": 16, "sliding_window": 8},
    "Gemma3": {**_SHARED, "head_dim": 16, "sliding_window": 8},
    "StableLm": _SHARED,
    "GPTNeoX": _SIZES,
    "GPT2": {**_SIZES, "n_positions": 128},
    "GPTJ": {**_SIZES, "rotary_dim": 8},
    "GPTBigCode": _SIZES,
    "GPTNeo": {**_SIZES, "num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 8},
    "CodeGen": {**_SIZES, "rotary_dim": 8},
    "OPT": {**_SIZES, "ffn_dim": 96, "word_embed_proj_dim": 64},
    "Bloom": _SIZES,
    "Falcon": _SIZES,
    "Mpt": {**_SIZES, "max_seq_len": 128},
    "Glm": {**_SHARED, "head_dim": 16},
    "Glm4": {**_SHARED, "head_dim": 16},
    "DeepseekV2": {
        **_SIZES,
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
    },
    "Jamba": {**_SHARED, **_EXPERTS, "attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "Mamba": {**_SIZES, "state_size": 8, "expand": 2, "conv_kernel": 4},
    "Cohere": _SHARED,
    "Granite": _SHARED,
    "Olmo": _SHARED,
    "Olmo2": _SHARED,
    "Starcoder2": _SHARED,
    "SmolLM3": _SHARED,
    "Nemotron": _SHARED,
    "Helium": {**_SHARED, "head_dim": 16},
    "XGLM": {**_SIZES, "d_model": 64, "attention_heads": 4, "num_layers": 2, "ffn_dim": 96},
}


# Why the step of others is not captured.
LEFT = {
    "Jamba": "it has layers of linear_attention",
    "Mamba": "it has layers of linear_attention",
}
# What keeps attention from being one op, where it is the model's own in the graph.
# Both as of transformers 5.24: in earlier versions more models attend in a way of their own.
OWN_ATTENTION = {
    "Gemma2": "its attention has softcap",
    "GPTNeo": "attend in a way of their own",
    "Bloom": "attend in a way of their own",
    "Falcon": "attend in a way of their own",
    "Mpt": "attend in a way of their own",
    "DeepseekV2": "its cache keeps other numbers than its attention reads",
    "XGLM": "attend in a way of their own",
}
IS_NEW = tuple(map(int, version("transformers").split(".")[:2])) >= (5, 24)
_CLASSES = {"GPT2": ("GPT2Config", "GPT2LMHeadModel"), "Gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM")}


@pytest.fixture(autouse=True)
def quiet():
    """No messages of transformers, and no gradients, in the tests of a file that imports it."""
    import transformers

    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    with torch.no_grad():
        yield
    transformers.logging.set_verbosity(level)


def words(batch: int, count: int, seed: int = 0) -> torch.Tensor:
    """Texts of random words."""
    return torch.randint(2, VOCABULARY, (batch, count), generator=torch.Generator().manual_seed(seed))


def prompts(batch: int = 2, count: int = 12, padding: slice = slice(3)) -> dict[str, torch.Tensor]:
    """Random texts, the first of them padded there."""
    mask = torch.ones(batch, count, dtype=torch.long)
    mask[0, padding] = 0
    return {"input_ids": words(batch, count), "attention_mask": mask}


def make(family: str, **more: Any) -> Any:
    """Return the model, in eval mode."""
    import transformers

    configuration, model_class = _CLASSES.get(family, (f"{family}Config", f"{family}ForCausalLM"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        config = getattr(transformers, configuration)(**{**FAMILIES[family], **more})
        model = getattr(transformers, model_class)(config).eval()
    for parameter in model.parameters():  # as they come, all logits are nearly the same
        if parameter.dim() > 1:
            parameter.data.mul_(4)
    return model
