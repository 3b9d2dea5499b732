"""FP8 linears once more: in plain tensors, with the 8-bit numbers out of their definition."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from support import FP32_TOLERANCE, assert_same

FORMATS = (torch.float8_e4m3fn, torch.float8_e5m2)


@cache
def numbers(dtype: torch.dtype) -> Tensor:
    """Return the finite numbers from zero up, in the order of their codes."""
    mantissa, bias, largest = (3, 7, 448.0) if dtype == torch.float8_e4m3fn else (2, 15, 57344.0)
    found = []
    for code in range(128):
        exponent, fraction = code >> mantissa, (code & 2**mantissa - 1) / 2**mantissa
        found.append(2.0 ** (1 - bias) * fraction if exponent == 0 else 2.0 ** (exponent - bias) * (1 + fraction))
    return torch.tensor([number for number in found if number <= largest], dtype=torch.float64)


def round_by_table(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Round numbers that are in range to the nearest, and to an even code where two are as near."""
    table, magnitude = numbers(dtype), tensor.double().abs()
    above = torch.searchsorted(table, magnitude).clamp(1, len(table) - 1)
    to_above, to_below = table[above] - magnitude, magnitude - table[above - 1]
    takes_above = (to_above < to_below) | ((to_above == to_below) & (above % 2 == 0))
    return (torch.where(takes_above, table[above], table[above - 1]) * tensor.double().sign()).float()


def linear_by_hand(
    x: Tensor, weight: Tensor, bias: Tensor | None, gradient: Tensor, scale: Tensor, dtypes: tuple[torch.dtype, ...]
) -> list[Tensor | None]:
    """Return the result, and the gradients of the input, the weight and the bias."""

    def rounded(tensor: Tensor, which: int) -> Tensor:
        largest = torch.finfo(dtypes[which]).max
        tensor = (tensor.detach().float() * scale[which]).clamp(-largest, largest)
        return round_by_table(tensor, dtypes[which]).double() / scale[which].double()

    flat, flat_gradient = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
    a, b, g = rounded(flat, 0), rounded(weight, 1), rounded(flat_gradient, 2)
    y = a @ b.t() if bias is None else a @ b.t() + bias.double()
    found = [y.reshape(*x.shape[:-1], len(weight)), (g @ b).reshape(x.shape), g.t() @ a]
    of_bias = None if bias is None else flat_gradient.double().sum(0).float()
    return [*(tensor.float() for tensor in found), of_bias]


def assert_like_by_hand(
    y: Tensor,
    x: Tensor,
    linear: nn.Linear,
    gradient: Tensor,
    scale: Tensor,
    dtypes: tuple[torch.dtype, ...],
    tolerance: float = FP32_TOLERANCE,
) -> None:
    """Compare y = linear(x), and the gradients that `gradient` gives, with those of `linear_by_hand`."""
    plain = [None if t is None else t.detach().cpu() for t in (x, linear.weight, linear.bias, gradient)]
    expected = linear_by_hand(*plain, scale.cpu(), dtypes)
    linear.zero_grad()
    y.backward(gradient)
    found = [y, x.grad, linear.weight.grad, None if linear.bias is None else linear.bias.grad]
    for name, actual, wanted in zip(("y", "dx", "dw", "db"), found, expected):
        assert (actual is None) == (wanted is None), name
        if actual is not None:
            assert_same(actual.cpu(), wanted, tolerance)
