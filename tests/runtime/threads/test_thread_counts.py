"""What a call gives does not depend on the number of threads, bit for bit, and is right with more than cores."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ipex

THREADS = (2, 5, 16)


class Cat(nn.Module):
    """Past keys and those of a word that is part of a larger product, as in a step of a language model."""

    def forward(self, past: Tensor, product: Tensor) -> Tensor:
        new = product.chunk(3, -1)[1].view(1, 1, 12, 64).transpose(1, 2)
        return torch.cat([past, new], 2)


class Attention(nn.Module):
    """Some queries and all keys."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(query, key, value)


def heads(count: int, length: int) -> Tensor:
    return torch.randn(1, count, length, 64)


CASES = {
    "one row, 768 columns": lambda: (nn.Linear(768, 768), (torch.randn(1, 768),)),
    "one row, 1000 columns": lambda: (nn.Linear(515, 1000), (torch.randn(1, 515),)),
    "one row, many columns": lambda: (nn.Linear(96, 20011), (torch.randn(1, 96),)),
    "three rows": lambda: (nn.Sequential(nn.Linear(770, 768), nn.GELU()), (torch.randn(3, 770),)),
    "six rows": lambda: (nn.Linear(768, 300), (torch.randn(6, 768),)),
    "128 rows": lambda: (nn.Linear(300, 768), (torch.randn(128, 300),)),
    "197 rows": lambda: (nn.Linear(256, 1000), (torch.randn(197, 256),)),
    "winograd": lambda: (nn.Conv2d(64, 128, 3, padding=1), (torch.randn(1, 64, 28, 28),)),
    "image and average": lambda: (
        nn.Sequential(nn.Conv2d(3, 1280, 16, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        (torch.randn(1, 3, 160, 160),),
    ),
    "layer norm": lambda: (nn.LayerNorm(768), (torch.randn(1, 50, 768),)),
    "cat": lambda: (Cat(), (heads(12, 128), torch.randn(1, 1, 2304))),
    "attention of one query": lambda: (Attention(), (heads(12, 1), heads(12, 300), heads(12, 300))),
    "attention": lambda: (Attention(), (heads(3, 40), heads(3, 300), heads(3, 300))),
}


@pytest.mark.parametrize("mode", [ipex.FP32MathMode.FP32, ipex.FP32MathMode.BF32])
@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_bits_are_the_same(name, mode):
    model, inputs = CASES[name]()
    traced = torch.jit.trace(model.eval(), inputs)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        optimized = ipex.jit_optimize(traced, fp32_math_mode=mode)
        expected = optimized(*inputs)
        rounding = 2e-2 if mode == ipex.FP32MathMode.BF32 else 1e-4
        torch.testing.assert_close(expected, model(*inputs), atol=rounding, rtol=rounding)
        for threads in THREADS:
            torch.set_num_threads(threads)
            found = optimized(*inputs)
            assert torch.equal(found, expected), threads
            assert found.stride() == expected.stride()
    finally:
        torch.set_num_threads(before)
