"""Every model of transformers that makes a small configuration: hidden size 256, two layers, a thousand words."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from .model import LeftOut
from .torchvision_import import import_with_torchvision

if importlib.util.find_spec("torchvision"):  # which transformers imports where it is installed
    import_with_torchvision("torchvision")
transformers: Any = importlib.import_module("transformers")

LEFT_OUT: dict[str, str] = {}

# What configurations call their sizes. Those of hierarchies, lists of depths and widths, stay as they are.
SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "encoder_hidden_size"), 256),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "decoder_num_hidden_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_key_value_heads"), 4),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_size"), 64),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "hidden_dim", "encoder_ffn_dim"), 1024),
    **dict.fromkeys(("decoder_ffn_dim", "moe_intermediate_size"), 1024),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 8),
    "vocab_size": 1000,
    "projection_dim": 256,
}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
WORDS = 64  # in a sentence
FIRST_WORD = 3
SAMPLES = 8000  # half a second of sound
IMAGE = 224  # where the configuration names no size


def names() -> list[str]:
    """Return all model types that AutoModel knows."""
    return sorted(importlib.import_module("transformers.models.auto.modeling_auto").MODEL_MAPPING_NAMES)


def build(name: str) -> nn.Module:
    """Build one; nothing is downloaded."""
    config_class = transformers.CONFIG_MAPPING[name]
    config = config_class(**_small(config_class))
    config.use_cache = False
    model: nn.Module = transformers.AutoModel.from_config(config)
    return model


def inputs(model: Any) -> dict[str, Tensor]:
    """Make what the model's signature and configuration ask for."""
    config, accepted = model.config, inspect.signature(model.forward).parameters
    made = {model.main_input_name: _input(model.main_input_name, config)}
    if hasattr(config, "projection_dim") and {"input_ids", "pixel_values"} <= accepted.keys():  # CLIP and its like
        made |= {name: _input(name, config) for name in ("input_ids", "pixel_values")}
    if config.is_encoder_decoder and "decoder_input_ids" in accepted:
        made["decoder_input_ids"] = _words(config, WORDS // 4)
    return made


def _small(config_class: Any) -> dict[str, Any]:
    default = vars(config_class())
    chosen = {key: value for key, value in {**SMALL, **TOKENS}.items() if isinstance(default.get(key), int)}
    for key, inner in config_class.sub_configs.items():
        if isinstance(default.get(key), inner):
            chosen[key] = _small(inner)
    return chosen


def _input(name: str, config: Any) -> Tensor:
    if name == "input_ids":
        return _words(config, WORDS)
    if name == "pixel_values":
        return torch.randn(1, *_image_shape(getattr(config, "vision_config", config)))
    if name == "input_values":
        return torch.randn(1, SAMPLES)
    if name == "input_features":
        bins = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", None) or 80
        return torch.randn(1, bins, 2 * getattr(config, "max_source_positions", 100))
    raise LeftOut(f"its input is {name}")


def _words(config: Any, count: int) -> Tensor:
    return torch.randint(FIRST_WORD, config.get_text_config().vocab_size, (1, count))


def _image_shape(config: Any) -> tuple[int, int, int]:
    size = getattr(config, "image_size", None) or IMAGE
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return getattr(config, "num_channels", 3), height, width
