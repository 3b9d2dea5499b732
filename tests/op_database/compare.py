"""One call of a model and everything that its caller can tell of it, and whether two such calls are alike."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from op_database.program import tensors_of
from support import FP32_TOLERANCE

MAGNIFIED = 1.0  # roundings of the largest element: a product of two rounded numbers is off by one


class Outcome(NamedTuple):
    """What came out, or the error."""

    error: str | None = None
    tensors: tuple[tuple[str, Tensor], ...] = ()  # results, then the arguments after the call, by name
    shared: tuple[tuple[str, str], ...] = ()  # which of them have memory in common


class Narrow(NamedTuple):
    """What 16-bit results are held against: stock's, and the same in float32."""

    dtype: torch.dtype
    stock: Callable[[], Outcome]
    exact: Callable[[], Outcome]
    disturbed: Callable[[], list[Outcome]]  # exact, of arguments and weights that are off by half a rounding


def observe(module: Any, arguments: tuple[Tensor, ...], seed: int = 1) -> Outcome:
    arguments = copy.deepcopy(arguments)
    torch.manual_seed(seed)
    try:
        with torch.no_grad():
            result = module(*arguments)
    except Exception as error:
        return Outcome(f"{type(error).__name__}: {str(error).strip()}")
    named = [(f"result {i}", t) for i, t in enumerate(tensors_of(result))]
    count = len(named)
    named += [(f"argument {i}", t) for i, t in enumerate(arguments)]
    shared = [
        (named[i][0], named[j][0])
        for i in range(count)
        for j in range(i + 1, len(named))
        if _memory(named[i][1]) is not None and _memory(named[i][1]) == _memory(named[j][1])
    ]
    return Outcome(None, tuple(named), tuple(shared))


def _memory(tensor: Tensor) -> int | None:
    if tensor.layout != torch.strided or not tensor.numel():
        return None
    return tensor.untyped_storage().data_ptr()


def difference(actual: Outcome, expected: Outcome, narrow: Narrow | None = None, values: bool = True) -> str | None:
    """What is different first, in words. Without `values` only their kind is looked at."""
    if (actual.error is None) != (expected.error is None):
        return f"error {actual.error!r} for {expected.error!r}"
    if actual.error is not None:
        return None
    if [name for name, _ in actual.tensors] != [name for name, _ in expected.tensors]:
        return f"{len(actual.tensors)} tensors for {len(expected.tensors)}"
    for index, ((name, a), (_, e)) in enumerate(zip(actual.tensors, expected.tensors)):
        for what in ("dtype", "shape", "layout"):
            if getattr(a, what) != getattr(e, what):
                return f"{name}: {what} {getattr(a, what)} for {getattr(e, what)}"
        if e.layout == torch.strided and e.numel():
            # docs/decisions/layout.md
            longer = [i for i, length in enumerate(e.shape) if length > 1]
            if any(a.stride(i) != e.stride(i) for i in longer):
                return f"{name}: strides {a.stride()} for {e.stride()}, shape {tuple(e.shape)}"
        if values and (found := _values(a, e, index, narrow)) is not None:
            return f"{name}: {found}"
    if actual.shared != expected.shared:
        return f"in common memory {actual.shared} for {expected.shared}"
    return None


def _values(a: Tensor, e: Tensor, index: int, narrow: Narrow | None) -> str | None:
    if a.layout != torch.strided:
        a, e = a.to_dense(), e.to_dense()
    if a.is_quantized:
        a, e = a.dequantize(), e.dequantize()
    if a.is_complex():
        a, e = torch.view_as_real(a.resolve_conj()), torch.view_as_real(e.resolve_conj())
    if not e.dtype.is_floating_point:
        return None if torch.equal(a, e) else f"{_some(a)} for {_some(e)}"
    if _same(a, e):
        return None
    if narrow is not None:
        stock, exact = narrow.stock(), narrow.exact()
        if stock.error is None and exact.error is None and stock.tensors[index][1].shape == a.shape:
            others = [found.tensors[index][1] for found in narrow.disturbed() if found.error is None]
            return _narrow_values(a, stock.tensors[index][1], exact.tensors[index][1], others, narrow.dtype)
    a, e = a.double(), e.double()
    finite = e[e.isfinite()]
    scale = max(finite.abs().max().item() if finite.numel() else 1.0, 1e-3)
    if torch.allclose(a, e, rtol=0, atol=FP32_TOLERANCE * scale, equal_nan=True):
        return None
    return f"{_some(a)} for {_some(e)}"


def _narrow_values(a: Tensor, stock: Tensor, exact: Tensor, disturbed: list[Tensor], dtype: torch.dtype) -> str | None:
    """tests/low_precision.py's rule: twice stock's error, and half a rounding of the largest element.

    Stock may have been lucky where roundings are magnified (a softmax of large numbers): there, what half a rounding of
    arguments and weights does counts as its error too.
    """
    a, stock, exact = a.double(), stock.double(), exact.double()
    compared = stock.isfinite() & exact.isfinite()
    if not compared.any() or _same(a, stock):
        return None
    if not a[compared].isfinite().all():
        return f"{_some(a)} for {_some(exact)}"
    scale = exact[compared].abs().max().item()
    ours, stocks = ((t - exact)[compared].abs().max().item() for t in (a, stock))
    own = 0.0
    for other in disturbed:
        off = (other.double() - exact)[compared & other.isfinite()].abs()
        own = max(own, off.max().item() if off.numel() else 0.0)
    if own > MAGNIFIED * torch.finfo(dtype).eps * scale:
        stocks = max(stocks, own)
    bound = 2 * stocks + torch.finfo(dtype).eps / 2 * scale
    if ours <= bound:
        return None
    return f"off by {ours:.3g}, stock by {stocks:.3g}, largest {scale:.3g}: {_some(a)} for {_some(exact)}"


def _same(a: Tensor, e: Tensor) -> bool:
    return bool(((a == e) | (a.isnan() & e.isnan())).all())


def _some(values: Tensor) -> list[float]:
    return [float(f"{value:.5g}") for value in values.flatten()[:6].tolist()]
