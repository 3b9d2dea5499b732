"""Models whose attention computes in 8 bits, after calibration."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from ipex.quantization import Recipe, convert, prepare
from support import assert_round_trip, contexts, kinds, why_aten

WIDTH, HEADS = 64, 4
OPS = ("ipex::attention_of_bytes", "ipex::scaled_dot_product_attention_of_bytes")


class Attention(nn.Module):
    """Three linears and attention in steps, as BERT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (f(x).view(*x.shape[:2], HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        return q, k, v

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.transpose(-1, -2) / 4.0).softmax(-1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.out((self.weights(q, k) @ v).transpose(1, 2).reshape(x.shape))


class Whole(Attention):
    """As one op, with a mask."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.scaled_dot_product_attention(*self.heads(x), is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class OneLinear(nn.Module):
    """One linear for query, key and value, as image models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.qkv(x).reshape(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x: Tensor) -> Tensor:
        y = F.scaled_dot_product_attention(*self.split(x))
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Chunks(OneLinear):
    """The same in pieces of a row."""

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        pieces = self.qkv(x).chunk(3, -1)
        return tuple(t.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for t in pieces)


class Turned(Attention):
    """With something between the linear and the products."""

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().heads(x)
        return q * q.cos(), k, v


class Kept(Attention):
    """Gives its keys to somebody else."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        q, k, v = self.heads(x)
        return self.out((self.weights(q, k) @ v).transpose(1, 2).reshape(x.shape)), k


class Twice(Attention):
    """Two attentions read one key and value; something is written in between."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        y = self.weights(q, k) @ v
        z = torch.zeros_like(x)
        z[:, 0] = 1.0
        y = y + F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(x.shape)) + z


def quantized(model: nn.Module, recipe: Recipe | None = None) -> tuple[Tensor, torch.jit.ScriptModule]:
    x = torch.randn(2, 33, WIDTH)
    prepared = prepare(model.eval(), x, recipe or Recipe("min_max", forced=True))
    prepared(x)
    return x, convert(prepared)


def in_bytes(module: torch.jit.ScriptModule) -> int:
    found = kinds(module)
    return sum(found[op] for op in OPS)


def reasons(module: torch.jit.ScriptModule) -> list[str]:
    return [d.reason for d in ipex.explain(module) if d.pass_name == "quantize" and not d.applied]


@pytest.mark.parametrize("make", [Attention, Whole, OneLinear, Chunks, Twice])
def test_numbers_go_in_and_come_out(make, tmp_path):
    torch.manual_seed(3)
    model = make()
    x, module = quantized(model)
    is_twice = make is Twice
    assert in_bytes(module) == 1 + is_twice
    # What it reads is rounded by the layers, what it gives by itself, unless somebody adds to it.
    assert kinds(module)["ipex::quantize"] == 1 + is_twice
    described = [context.describe() for context in contexts(module)]
    assert sum("result=uint8" in text for text in described) == len(described) - 1
    with torch.no_grad():
        expected = model(x)
        assert (module(x) - expected).norm() / expected.norm() < 0.03
        assert why_aten(lambda: module(x)) is None
        assert_round_trip(module, tmp_path, x)


def test_a_recipe_leaves_it_in_floats():
    _, module = quantized(Attention(), Recipe(attention=False, forced=True))
    assert in_bytes(module) == 0
    assert kinds(module)["ipex::attention"] == 1
    assert reasons(module) == ["it was to be left in float"]
    # It rounds as little as the layers do.
    assert [d.reason for d in ipex.explain(module) if d.pass_name == "pin_attention"] == ["BF32"]


def test_while_it_is_observed_it_computes_as_it_did():
    prepared = prepare(Attention().eval(), torch.randn(2, 33, WIDTH), Recipe(forced=True))
    assert not [d for d in ipex.explain(prepared._observed) if d.pass_name == "pin_attention"]


@pytest.mark.parametrize(
    ("make", "reason"), [(Turned, "no layer in int8"), (Kept, "somebody else reads its query, key or value")]
)
def test_declines(make, reason):
    model = make()
    x, module = quantized(model)
    assert in_bytes(module) == 0
    assert any(reason in own for own in reasons(module))
    with torch.no_grad():
        expected, actual = model(x), module(x)
    for a, b in zip(actual, expected) if isinstance(expected, tuple) else [(actual, expected)]:
        assert (a - b).norm() / b.norm() < 0.05


def test_tables_of_embeddings():
    model = nn.Sequential(nn.Embedding(1000, WIDTH), nn.Linear(WIDTH, WIDTH)).eval()
    words = torch.randint(0, 1000, (4, 9))
    for embeddings in (False, True):
        prepared = prepare(model, words, Recipe(embeddings=embeddings, forced=True))
        prepared(words)
        module = convert(prepared)
        assert kinds(module)["ipex::embedding_in_int8"] == embeddings
        with torch.no_grad():
            expected = model(words)
            assert (module(words) - expected).norm() / expected.norm() < 0.03
