"""A sum that is accumulated into its operand changes what somebody else reads. None may be."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anchored import After, check, each_kind, every_anchor, make, named


def input_overwritten(f: nn.Module, x: Tensor) -> Any:
    y = f(x)
    x += 1
    return y + x


def view_of_the_residual(f: nn.Module, x: Tensor) -> Any:
    a = torch.sigmoid(x)
    view = a[:1]
    return f(a) + a, view * 2


def view_of_the_result(f: nn.Module, x: Tensor) -> Any:
    y = f(x)
    view = y[:1]
    y += x
    return y, view


def residual_returned(f: nn.Module, x: Tensor) -> Any:
    a = torch.sigmoid(x)
    return F.relu(f(a) + a), a


def residual_read_later(f: nn.Module, x: Tensor) -> Any:
    a = torch.sigmoid(x)
    y = f(a) + a
    return y * a


def residual_added_twice(f: nn.Module, x: Tensor) -> Any:
    a = torch.sigmoid(x)
    return F.relu(f(a) + a) + f(a) + a


def residual_through_a_list(f: nn.Module, x: Tensor) -> Any:
    parts = list(torch.sigmoid(x).chunk(1))
    return f(x) + parts[0], parts[0]


CASES = {
    "the input": lambda f, x: f(x) + x,
    "the input, first": lambda f, x: x + f(x),
    "the input, relu": lambda f, x: F.relu(x + f(x)),
    "the input, in place": lambda f, x: f(x).add_(x).relu_(),
    "the input, twice": lambda f, x: f(f(x) + x) + x,
    "the input, multiplied": lambda f, x: f(x) * x,
    "the input, subtracted": lambda f, x: f(x) - x,
    "a view of the input": lambda f, x: f(x) + x.view(x.shape),
    "the input, overwritten": input_overwritten,
    "one with a live view": view_of_the_residual,
    "the result has a live view": view_of_the_result,
    "one that is returned": residual_returned,
    "one that is read later": residual_read_later,
    "one that is added twice": residual_added_twice,
    "one out of a list": residual_through_a_list,
}


@each_kind
@named("function", CASES)
def test_everybody_reads_what_eager_gives(anchor, function):
    module, x = make(anchor)
    check(After(module, function), (x,))


@every_anchor
def test_the_result_is_not_the_residual(anchor):
    module, x = make(anchor)
    optimized = check(After(module, lambda f, x: f(x) + x), (x,))
    with torch.no_grad():
        assert optimized(x).data_ptr() != x.data_ptr()
