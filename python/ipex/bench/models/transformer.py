"""BERT base, ViT-B/16 and GPT-2 small, each with its attention as it is commonly written."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, LAYERS = 768, 12, 12
PAST_LENGTH = 128
GPT2_WORDS = 50257


def split_heads(x: Tensor) -> Tensor:
    """[batch, length, width] to [batch, heads, length, width of a head]."""
    return x.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Undo split_heads."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], WIDTH)


class BertLayer(nn.Module):
    """Attention spelt out, with a mask; norms come after the residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Apply the layer."""
        q, k, v = split_heads(self.query(x)), split_heads(self.key(x)), split_heads(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / (WIDTH // HEADS) ** 0.5 + mask
        y = self.out(join_heads(torch.matmul(F.softmax(scores, dim=-1), v)))
        x = self.norm1(y + x)
        return self.norm2(self.narrow(F.gelu(self.wide(x))) + x)  # type: ignore[no-any-return]


class Bert(nn.Module):
    """Embeddings, layers, and a pooler on the first word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.types = (
            nn.Embedding(30522, WIDTH),
            nn.Embedding(512, WIDTH),
            nn.Embedding(2, WIDTH),
        )
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer() for _ in range(LAYERS))
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, words: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Encode sentences; the mask is 1 where there is a word."""
        positions = torch.arange(words.shape[1], device=words.device)
        x = self.norm(self.words(words) + self.types(torch.zeros_like(words)) + self.positions(positions))
        additive = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, additive)
        return x, torch.tanh(self.pooler(x[:, 0]))


def bert_base() -> nn.Module:
    """110 million parameters."""
    return Bert()


class ViTLayer(nn.Module):
    """Attention as one op; norms come before."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        y = self.norm1(x)
        q, k, v = split_heads(self.query(y)), split_heads(self.key(y)), split_heads(self.value(y))
        x = x + self.out(join_heads(F.scaled_dot_product_attention(q, k, v)))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))  # type: ignore[no-any-return]


class ViT(nn.Module):
    """Patches of 16x16 pixels and a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 16, stride=16)
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.zeros(1, 197, WIDTH))
        self.layers = nn.Sequential(*(ViTLayer() for _ in range(LAYERS)))
        self.norm, self.classify = nn.LayerNorm(WIDTH, eps=1e-6), nn.Linear(WIDTH, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images."""
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.class_token.expand(x.shape[0], -1, -1), y], 1) + self.positions
        return self.classify(self.norm(self.layers(y))[:, 0])  # type: ignore[no-any-return]


def vit_b16() -> nn.Module:
    """86 million parameters."""
    return ViT()


class Affine(nn.Module):
    """A linear layer as GPT-2 stores it: the weight is [in, out]."""

    weight_is_transposed = True

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(width_in, width)), nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        y = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return y.view(x.shape[0], x.shape[1], y.shape[-1])


class GPT2Layer(nn.Module):
    """Attention to the words so far."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value, self.out = Affine(WIDTH, 3 * WIDTH), Affine(WIDTH, WIDTH)
        self.wide, self.narrow = Affine(WIDTH, 4 * WIDTH), Affine(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        """Apply the layer; return keys and values too, for the next word."""
        q, k, v = (split_heads(part) for part in self.query_key_value(self.norm1(x)).split(WIDTH, dim=2))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        x = x + self.out(join_heads(F.scaled_dot_product_attention(q, k, v, is_causal=past is None)))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh")), k, v


class GPT2(nn.Module):
    """A prompt, or one word after a past: keys and values of each layer in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(GPT2_WORDS, WIDTH), nn.Embedding(1024, WIDTH)
        self.layers = nn.ModuleList(GPT2Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, words: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """Score every word as the next one; return the new past too."""
        first = past[0].shape[2] if past else 0
        positions = torch.arange(first, first + words.shape[1], device=words.device)
        x = self.words(words) + self.positions(positions)
        present: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            x, k, v = layer(x, (past[2 * i], past[2 * i + 1]) if past else None)
            present += [k, v]
        return (F.linear(self.norm(x[:, -1]), self.words.weight), *present)


def gpt2() -> nn.Module:
    """124 million parameters."""
    return GPT2()


def past(batch: int) -> tuple[Tensor, ...]:
    """Make keys and values of PAST_LENGTH words for each layer."""
    return tuple(torch.randn(batch, HEADS, PAST_LENGTH, WIDTH // HEADS) for _ in range(2 * LAYERS))
