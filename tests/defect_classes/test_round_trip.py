"""A file holds everything, post-ops too. tests/consumer has find_package, from the installed wheel."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ipex
from anchored import After, batch_norm, check, every_anchor, every_convolution, make
from support import assert_same


def assert_survives(optimized: torch.jit.ScriptModule, x: torch.Tensor, folder) -> None:
    """Through ipex.load, torch.jit.load, a copy, and a second generation."""
    first, second = folder / "first.pt", folder / "second.pt"
    optimized.save(first)
    with torch.no_grad():
        expected = optimized(x)
        for other in (ipex.load(first), torch.jit.load(first), copy.deepcopy(optimized)):
            assert_same(other(x), expected, tolerance=0)
            other.save(second)
            assert_same(ipex.load(second)(x), expected, tolerance=0)


@every_anchor
def test_post_ops(anchor, tmp_path):
    module, x = make(anchor)
    assert_survives(check(After(module, lambda f, x: F.relu(F.silu(f(x)) * 3 + x) - 1), (x,)), x, tmp_path)


@every_convolution
@pytest.mark.parametrize("bias", [True, False])
def test_batch_norm(anchor, bias, tmp_path):
    module, x = make(anchor)
    if not bias:
        module.bias = None
    model = nn.Sequential(module, batch_norm(anchor), nn.LeakyReLU(0.2))
    assert_survives(check(model, (x,)), x, tmp_path)
