"""Numbers that elementwise ops are tried with, and how close to aten's their results have to be."""

import math

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def special_values(dtype: torch.dtype) -> Tensor:
    """NaN, infinities, zeros, borders of activations, numbers of every size, and a dense range."""
    info = torch.finfo(dtype)
    borders = [0.0, 1.0, 3.0, 6.0, 20.0, 50.0, 87.4, 88.6, 88.8, 103.9, 104.1, 1e3, info.tiny, info.max, math.inf]
    chosen = torch.tensor([math.nan, *borders, *(-b for b in borders), info.tiny / 4])
    powers = 2.0 ** torch.arange(-30, 30)
    return torch.cat([chosen, torch.linspace(-12, 12, 3001), powers, -powers]).to(dtype)


def assert_as_exact(actual: Tensor, expected: Tensor) -> None:
    """Each element to some units in the last place, NaN and infinities where eager has them."""
    assert actual.dtype == expected.dtype
    assert actual.stride() == expected.stride()
    units = 16 * torch.finfo(torch.float32).eps if expected.dtype == torch.float32 else torch.finfo(expected.dtype).eps
    torch.testing.assert_close(actual.double(), expected.double(), rtol=units, atol=1e-36, equal_nan=True)
