"""Transformers and ConvNeXt as the library `transformers` builds them, with attention spelt out and as one op.

Every configuration is small, and nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from zoo.model import Model, floats, image, integers

HIDDEN = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WORDS = {"vocab_size": 100, **TOKENS}


class OneInput(nn.Module):
    """A model as a function of one tensor that returns tensors."""

    def __init__(self, model: nn.Module, input_name: str) -> None:
        super().__init__()
        self.model, self.input_name = model, input_name

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.model(**{self.input_name: x}, return_dict=False)[:2]


class TwoInputs(nn.Module):
    """A model as a function of two tensors that returns a tensor; no cache of keys and values."""

    def __init__(self, model: nn.Module, input_names: tuple[str, str]) -> None:
        super().__init__()
        self.model, self.input_names = model, input_names

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.model(**dict(zip(self.input_names, (x, y))), return_dict=False)[0]


def build(name: str, attention: str, input_names: tuple[str, ...], config: dict[str, Any]) -> nn.Module:
    """Build e.g. the BertModel of a BertConfig."""
    import transformers

    made = getattr(transformers, f"{name}Config")(attn_implementation=attention, **config)
    model = getattr(transformers, f"{name}Model")(made)
    return OneInput(model, input_names[0]) if len(input_names) == 1 else TwoInputs(model, input_names)


def sentences(batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Words, and a mask that hides the end of the first sentence."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, length * 2 // 3 :] = 0
    return integers(batch, length), mask


SENTENCES = (lambda: sentences(2, 12), lambda: sentences(3, 9))
TRANSLATIONS = (lambda: (integers(2, 12), integers(2, 5)), lambda: (integers(3, 9), integers(3, 7)))
SMALL_IMAGES = (lambda: (image(1, 3, 32, 32),), lambda: (image(3, 3, 32, 32),))
SPEECH = (lambda: (floats(1, 20, 64), integers(1, 6)), lambda: (floats(2, 20, 64), integers(2, 4)))
SOUND = (lambda: (floats(1, 800),), lambda: (floats(2, 1200),))

TEXT = ("input_ids", "attention_mask")
IMAGE = ("pixel_values",)

# name, class, names of the inputs, inputs, configuration
TRANSFORMERS = (
    ("BERT", "Bert", TEXT, SENTENCES, {**HIDDEN, **WORDS, "use_cache": False}),
    ("RoBERTa", "Roberta", TEXT, SENTENCES, {**HIDDEN, **WORDS, "use_cache": False}),
    ("DistilBERT", "DistilBert", TEXT, SENTENCES, {**WORDS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    ("GPT-2", "GPT2", TEXT, SENTENCES, {**WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}),
    (
        "T5",
        "T5",
        ("input_ids", "decoder_input_ids"),
        TRANSLATIONS,
        {**WORDS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "use_cache": False},
    ),
    ("ViT", "ViT", IMAGE, SMALL_IMAGES, {**HIDDEN, "image_size": 32, "patch_size": 8}),
    (
        "Swin",
        "Swin",
        IMAGE,
        SMALL_IMAGES,
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    ),
    (
        "Whisper",
        "Whisper",
        ("input_features", "decoder_input_ids"),
        SPEECH,
        {
            **WORDS,
            "decoder_start_token_id": 1,
            "num_mel_bins": 20,
            "max_source_positions": 32,
            "max_target_positions": 16,
            "d_model": 32,
            **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
            **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
            **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
            "use_cache": False,
        },
    ),
    (
        "wav2vec 2.0",
        "Wav2Vec2",
        ("input_values",),
        SOUND,
        {
            **HIDDEN,
            "conv_dim": (16, 16, 16),
            "conv_kernel": (10, 3, 2),
            "conv_stride": (5, 2, 2),
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
        },
    ),
)


def builder(name: str, attention: str, input_names: tuple[str, ...], config: dict[str, Any]) -> Callable[[], nn.Module]:
    """Bind the arguments of `build`."""
    return lambda: build(name, attention, input_names, config)


HUGGING_FACE = [
    Model(
        "ConvNeXt",
        builder("ConvNext", "eager", IMAGE, {"hidden_sizes": [16, 32], "depths": [1, 2], "num_stages": 2}),
        (lambda: (image(1, 3, 32, 32),), lambda: (image(2, 3, 48, 40),)),
        scripts=False,
        needs="transformers",
    ),
    *(
        Model(
            f"{name}, {attention}",
            builder(model, attention, input_names, config),
            inputs,
            scripts=False,
            needs="transformers",
        )
        for name, model, input_names, inputs, config in TRANSFORMERS
        for attention in ("eager", "sdpa")
    ),
]
