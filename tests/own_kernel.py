"""Layers that a kernel of our own computes, which makes no primitive of oneDNN."""

import torch
from torch import Tensor, nn

import ipex
from support import assert_same, contexts


def optimized(model: nn.Module, x: Tensor) -> torch.jit.ScriptModule:
    return ipex.jit_optimize(torch.jit.trace(model.eval(), x, check_trace=False))


def check(model: nn.Module, x: Tensor, is_own: bool = True) -> torch.jit.ScriptModule:
    own, before = optimized(model, x), x.clone()
    for _ in range(3):
        assert_same(own(x), model(x))
    assert torch.equal(x.nan_to_num(), before.nan_to_num())
    assert sum(context.cached_primitives() for context in contexts(own)) == (0 if is_own else 1)
    return own
