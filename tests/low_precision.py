"""What is asked of 16-bit results: that they are about as near to float32's as stock PyTorch's are.

Post-ops are applied before the sum is rounded, and a folded batch_norm rounds the weight instead of the convolution's
result. So the bits differ from stock's. The bound is twice stock's largest error, as roundings fall differently, and
half of a rounding of the largest element, as stock may be exact by luck.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import ipex
from anchored import trace
from support import fallback_reasons, kinds

TIMES_STOCKS_ERROR = 2

both_dtypes = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])


def is_native(dtype: torch.dtype) -> bool:
    """Whether the CPU computes in this dtype, so that oneDNN has to be used."""
    return ipex.isa.has_bf16() if dtype == torch.bfloat16 else ipex.isa.has_fp16()


def distance(actual: Tensor, exact: Tensor) -> float:
    """Measure the largest error, relative to the largest element."""
    return ((actual.double() - exact.double()).abs().max() / exact.abs().max()).item()


def assert_no_worse(
    ours: Tensor, stock: Tensor, exact: Tensor, dtype: torch.dtype, times: int = TIMES_STOCKS_ERROR
) -> None:
    bound = times * distance(stock, exact) + torch.finfo(dtype).eps / 2
    assert distance(ours, exact) <= bound


def assert_kernels_were_used(optimized: torch.jit.ScriptModule, dtype: torch.dtype) -> None:
    """For products of two activations where the CPU has them; elsewhere that the reason is just this."""
    name = "bfloat16" if dtype == torch.bfloat16 else "float16"
    is_left = "ipex::matmul_run" in kinds(optimized) and not is_native(dtype)
    expected = {f"this CPU has no {name} instructions, or a cap forbids them"} if is_left else set()
    assert set(fallback_reasons(optimized)) == expected


def assert_calls(
    optimized: torch.jit.ScriptModule, x: Tensor, like: Tensor, stock: Tensor, exact: Tensor, dtype: torch.dtype
) -> None:
    """Each of a few calls gives what looks like `like`, and is no worse than stock."""
    for _ in range(3):
        ours = optimized(x)
        assert ours.dtype == like.dtype
        assert ours.shape == like.shape
        assert ours.stride() == like.stride()
        assert_no_worse(ours, stock, exact, dtype)


def check_16_bit(model: nn.Module, x: Tensor, dtype: torch.dtype) -> torch.jit.ScriptModule:
    """Compare a model of this dtype with float32 arithmetic on the same 16-bit weights, and with stock PyTorch."""
    low, low_x = copy.deepcopy(model).eval().to(dtype), x.to(dtype)
    optimized = ipex.jit_optimize(trace(low, low_x))
    with torch.no_grad():
        exact, stock = copy.deepcopy(low).float()(low_x.float()), low(low_x)
        assert_calls(optimized, low_x, stock, stock, exact, dtype)
    return optimized


def check_lowered(model: nn.Module, x: Tensor, dtype: torch.dtype) -> torch.jit.ScriptModule:
    """Compare a float32 model that was given this dtype with eager, and with the model that stock casts to it."""
    model = model.eval()
    optimized = ipex.jit_optimize(trace(model, x), dtype=dtype)
    with torch.no_grad():
        exact, stock = model(x), copy.deepcopy(model).to(dtype)(x.to(dtype))
        assert_calls(optimized, x, exact, stock, exact, dtype)
    return optimized
