"""Arguments of a recorded call, some of them changed, as a damaged file or a careless caller has them."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

INTS = (0, 1, -1, 2, 3, 5, 7, 64, 1000, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, 1e-40, 1e38, 1e308, float("nan"), float("inf"), -float("inf"))
DTYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8, torch.int8, torch.int16, torch.int32),
    *(torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn),
)
LARGEST_TENSOR = 1 << 22


def altered(arguments: list[Any], types: list[str], others: list[list[Any]], draw: random.Random) -> list[Any]:
    """`others` are the arguments of other calls of the same op."""
    found = list(arguments)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        i = draw.randrange(len(found)) if found else 0
        if not found:
            break
        if draw.random() < 0.25:
            found[i] = draw.choice(others)[i]
        else:
            found[i] = _another(found[i], types[i], draw)
    return found


def _another(value: Any, kind: str, draw: random.Random) -> Any:
    if kind.startswith("Optional") and draw.random() < 0.2:
        return None
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice((*INTS, value + 1, value - 1, -value, value * 1000, draw.randrange(-8, 50)))
    if isinstance(value, float):
        return draw.choice((*FLOATS, -value, value * 1e6))
    if isinstance(value, str):
        return draw.choice(("", value[:-1], value + "x", value.replace("0", "9"), value * 1000, "\0", "1 2 3"))
    if isinstance(value, torch.dtype):
        return draw.choice(DTYPES)
    if isinstance(value, Tensor):
        return _another_tensor(value, draw)
    if isinstance(value, (list, tuple)):
        return _another_list(list(value), kind, draw)
    return value


def _another_list(values: list[Any], kind: str, draw: random.Random) -> list[Any]:
    if not values:
        return draw.choice(([], [0], [1, 1])) if "int" in kind else values
    way = draw.randrange(7)
    if way == 6 and isinstance(values[0], int):  # whose sum or product wraps around
        return [draw.choice((value, *INTS[-6:])) for value in values]
    i = draw.randrange(len(values))
    if way == 0:
        return values[:i]
    if way == 1:
        return [*values, values[i]]
    if way == 2:
        return values * draw.choice((2, 50, 3000))
    return [*values[:i], _another(values[i], "", draw), *values[i + 1 :]]


def _another_tensor(x: Tensor, draw: random.Random) -> Tensor:
    if x.device.type != "cpu" or x.layout != torch.strided:  # changed once already
        return x
    x = x.detach()
    shape, d = list(x.shape), draw.randrange(x.dim()) if x.dim() else 0
    way = draw.randrange(12)
    if way == 0:
        return x.to(draw.choice(DTYPES)) if not x.is_complex() else x.real.clone()
    if way in (1, 2) and shape:
        shape[d] = draw.choice((0, 1, shape[d] + 1, max(shape[d] - 1, 0), 2 * shape[d], 37))
        return _of_shape(x, shape)
    if way == 3:
        return _of_shape(x, [*shape[:d], *shape[d + 1 :]])
    if way == 4:
        return _of_shape(x, [*shape[:d], draw.choice((1, 2)), *shape[d:]])
    if way == 5 and shape:
        return x.narrow(d, 0, min(1, shape[d])).expand(shape)  # one element many times
    if way == 6 and len(shape) > 1:
        return x.transpose(d, draw.randrange(len(shape)))
    if way == 7:
        return x.to("meta")
    if way == 8 and x.is_floating_point():
        return x.clone().requires_grad_()
    if way == 9 and not x.is_floating_point() and x.dtype != torch.bool and not x.is_complex():
        return x + draw.choice((-1000, 1000, 2**31 - 1)) if x.dtype in (torch.int32, torch.int64) else x.clone()
    if way == 10 and not x.dtype.is_floating_point:
        return x.clone()
    if way == 10:
        return x * draw.choice((float("nan"), float("inf"), 1e30, 1e-38)) if x.dtype.itemsize > 1 else x.clone()
    if way == 11 and x.dim() == 2 and x.numel() < 10_000 and x.is_floating_point():
        return x.to_sparse() if draw.random() < 0.5 else _negated(x)
    return _of_shape(x, [])


def _negated(x: Tensor) -> Tensor:
    """A view whose elements are negated when they are read."""
    return torch._neg_view(x.clone())


def _of_shape(x: Tensor, shape: list[int]) -> Tensor:
    if torch.Size(shape).numel() > LARGEST_TENSOR:
        return x
    made = torch.zeros(shape, dtype=x.dtype)
    flat, given = made.view(-1), x.contiguous().reshape(-1)
    if x.numel():
        count = min(flat.numel(), given.numel())
        flat[:count] = given[:count]
    return made


def drawn(types: list[str], contexts: dict[str, list[Any]], draw: random.Random) -> list[Any] | None:
    """Arguments of these types that fit together by chance only; None where there is no object of a class."""
    rank = draw.choice((0, 1, 2, 2, 3, 3, 4, 4, 5))
    found = []
    for kind in types:
        value = _drawn(kind, rank, contexts, draw)
        if value is None and not kind.startswith("Optional"):
            return None
        found.append(value)
    return found


def _drawn(kind: str, rank: int, contexts: dict[str, list[Any]], draw: random.Random) -> Any:
    if kind.startswith("Optional["):
        return None if draw.random() < 0.5 else _drawn(kind[len("Optional[") : -1], rank, contexts, draw)
    if kind.startswith("List["):
        inner = kind[len("List[") : -1]
        values = [_drawn(inner, rank, contexts, draw) for _ in range(draw.choice((0, 1, 2, 2, 3, 4, 8)))]
        return None if any(value is None for value in values) else values
    if kind == "Tensor":
        shape = [draw.choice((0, 1, 2, 3, 4, 8, 16)) for _ in range(rank)]
        return torch.randn(shape).to(draw.choice((torch.float32, *DTYPES)))
    plain = {
        "int": lambda: draw.choice((*range(4), *INTS)),
        "float": lambda: draw.choice((0.5, *FLOATS)),
        "bool": lambda: draw.random() < 0.5,
        "str": lambda: draw.choice(("relu", "none", "constant", "bilinear", "int8", "mul 0 1", "")),
        "number": lambda: draw.choice((1, 0.5, *INTS)),
    }
    if kind in plain:
        return plain[kind]()
    return draw.choice(contexts[kind]) if contexts.get(kind) else None
