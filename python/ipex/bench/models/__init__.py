"""Well-known models in their real size, with random weights: no download, no package but torch.

MODELS is the one list of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .convolutional import densenet121, mobilenet_v2, resnet50, unet, vgg16
from .plain import lstm, tiny_mlp, wide_mlp
from .transformer import PAST_LENGTH, bert_base, gpt2, past, vit_b16
from .weights import enliven

SEED = 0
WORDS = 30522


@dataclass(frozen=True)
class Model:
    """How to build a model and its inputs, and the batches that are timed unless others are asked for."""

    title: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    batches: tuple[int, ...]

    def make(self, batch: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """Build the model in eval mode and its inputs; the same ones each time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return enliven(self.build()).eval(), self.inputs(batch)


def _images(size: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda batch: (torch.randn(batch, 3, size, size),)


def _floats(*shape: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda batch: (torch.randn(batch, *shape),)


def _sentences(batch: int) -> tuple[Tensor, ...]:
    return torch.randint(0, WORDS, (batch, 128)), torch.ones(batch, 128, dtype=torch.long)


def _prompts(batch: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, WORDS, (batch, PAST_LENGTH)),)


def _next_words(batch: int) -> tuple[Tensor, ...]:
    return (torch.randint(0, WORDS, (batch, 1)), *past(batch))


MODELS = {
    "resnet50": Model("ResNet-50", resnet50, _images(224), (1, 4)),
    "mobilenet_v2": Model("MobileNetV2", mobilenet_v2, _images(224), (1, 8)),
    "vgg16": Model("VGG-16", vgg16, _images(224), (1, 2)),
    "densenet121": Model("DenseNet-121", densenet121, _images(224), (1, 4)),
    "unet": Model("U-Net", unet, _images(192), (1, 2)),
    "bert_base": Model("BERT base, 128 words", bert_base, _sentences, (1, 2)),
    "vit_b16": Model("ViT-B/16", vit_b16, _images(224), (1, 2)),
    "gpt2_prompt": Model("GPT-2 small, prompt of 128", gpt2, _prompts, (1, 2)),
    "gpt2_step": Model("GPT-2 small, one word after 128", gpt2, _next_words, (1, 8)),
    "wide_mlp": Model("MLP, 1024 to 4096 wide", wide_mlp, _floats(1024), (1, 64)),
    "tiny_mlp": Model("MLP, 64 to 256 wide", tiny_mlp, _floats(64), (1, 64)),
    "lstm": Model("LSTM, 2 layers", lstm, _floats(64, 256), (1, 8)),
}
