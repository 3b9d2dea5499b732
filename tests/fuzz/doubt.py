"""Where eager's own answer is one of several: found by evaluating the model again with its ops shaken."""

from __future__ import annotations

import contextlib
import string
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Shake = Callable[[Any, tuple[Any, ...], Tensor], None]
NORMS = (torch.ops.aten.native_group_norm.default, torch.ops.aten.native_layer_norm.default)
GELUS = (torch.ops.aten.gelu.default, torch.ops.aten.gelu_.default)


class Shaken(TorchDispatchMode):
    """Lets `shake` change what each op computes; what is only a view of an input stays."""

    def __init__(self, shake: Shake) -> None:
        super().__init__()
        self.shake = shake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name  # what it overwrites may be asked for
        is_overwritten = func in GELUS or name.removesuffix("_").removeprefix("aten::") in DIVISORS
        given = [a.clone() if is_overwritten and isinstance(a, Tensor) else a for a in args]
        results = func(*args, **(kwargs or {}))
        given = [*given, *(kwargs or {}).values()]
        listed = results if isinstance(results, (tuple, list)) else (results,)
        declared = func._schema.returns
        is_list = len(declared) == 1 and isinstance(results, list)
        for i, (declaration, result) in enumerate(zip(declared * len(listed) if is_list else declared, listed)):
            is_view = declaration.alias_info is not None and not declaration.alias_info.is_write
            if isinstance(result, Tensor) and result.is_floating_point() and not is_view:
                is_each = func._schema.name.startswith("aten::_foreach_")  # an op for each tensor of its lists
                self.shake(func, tuple(a[i] if is_each and isinstance(a, list) else a for a in given), result)
        return results


def rounding(dtype: torch.dtype, given: torch.dtype | None) -> float:
    """Half of what an element is disturbed by, relative to it: a rounding of its dtype, which is two half ones; or,
    for float32 in a model that was given a narrower dtype, a fourth of that dtype's eps: one half rounding, no more."""
    return torch.finfo(given).eps / 4 if given is not None and dtype == torch.float32 else torch.finfo(dtype).eps


def by_rounding(seed: int, given: torch.dtype | None = None) -> Shake:
    """Every result is off by up to two roundings of each element."""
    generator = torch.Generator().manual_seed(seed)

    def shake(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        eps = rounding(result.dtype, given)
        by = torch.rand(result.shape, generator=generator, dtype=torch.float64) * 2 - 1
        result.mul_((1 + 2 * eps * by).to(result.dtype))
        if func in GELUS:  # 1 + tanh, and 1 + erf, are next to 0 for negative numbers
            result.add_((eps / 2 * by * args[0].nan_to_num(0, 0, 0)).to(result.dtype))

    return shake


def by_given_dtype(given: torch.dtype) -> Shake:
    """Every result is rounded to the dtype that the model was given."""

    def shake(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        result.copy_(result.to(given))

    return shake


ROUNDED_DIVISIONS = (torch.ops.aten.div.Tensor_mode, torch.ops.aten.div.Scalar_mode)
STEPS = ("floor", "ceil", "round", "trunc", "frac", "fmod", "remainder", "floor_divide", "sign")


def past_steps(factor: float) -> Shake:
    """What jumps where its first argument passes a number, jumps a few roundings earlier or later."""

    def shake(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        name = func._schema.name.removeprefix("aten::")
        mode = {"rounding_mode": args[2]} if func in ROUNDED_DIVISIONS else {}
        if (name in STEPS or mode) and func._overloadname != "decimals" and args[0].is_floating_point():
            result.copy_(func(args[0] * (1 + factor * torch.finfo(args[0].dtype).eps), *args[1:2], **mode))

    return shake


DIVISORS = {"div": 1, "fmod": 1, "remainder": 1, "floor_divide": 1, "reciprocal": 0, "rsqrt": 0, "sqrt": 0}
DIVISORS |= {"log": 0, "log2": 0, "log10": 0}


def at_poles(given: torch.dtype | None = None) -> Shake:
    """A divisor that is no more than rounding beside the largest is zero."""

    def shake(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        where = DIVISORS.get(func._schema.name.removeprefix("aten::").removesuffix("_"))
        divisor = None if where is None else args[where]
        if isinstance(divisor, Tensor) and divisor.is_floating_point() and divisor.numel():
            size = divisor.nan_to_num(0, 0, 0).abs().max()
            near = divisor.abs() <= 8 * rounding(divisor.dtype, given) * size
            result.masked_fill_(near.expand(result.shape), torch.nan)

    return shake


def with_whole_exponents(given: torch.dtype | None = None) -> Shake:
    """An exponent a few roundings beside a whole number is that number: only then a negative base has a power."""

    def shake(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        is_power = func._schema.name in ("aten::pow", "aten::_foreach_pow") and len(args) > 1
        if is_power and isinstance(args[1], Tensor) and args[1].is_floating_point():
            whole = args[1].round()
            is_near = (args[1] - whole).abs() <= 8 * rounding(args[1].dtype, given) * whole.abs()
            result.copy_(torch.pow(args[0], torch.where(is_near, whole, args[1])))

    return shake


def by_cancellation(seed: int, given: torch.dtype | None = None) -> Shake:
    """Every result is off by up to a rounding of its largest element, so that no zero stays one."""
    generator = torch.Generator().manual_seed(seed)

    def shake(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        size = result.nan_to_num(0, 0, 0).abs().max() if result.numel() else 0.0
        by = torch.rand(result.shape, generator=generator, dtype=torch.float64) * 2 - 1
        result.add_((size * rounding(result.dtype, given) * by).to(result.dtype))

    return shake


def by_tiles(seed: int) -> Shake:
    """A convolution of 3x3 windows is off by roundings of what lies in its tile: Winograd's way sums 4x4 results as one
    (docs/decisions/convolutions.md), and what is small beside a large neighbour has its roundings, times
    what the transforms multiply them by: 48 times its eps was seen, and compare.FACTOR is 8."""
    generator = torch.Generator().manual_seed(seed)
    farthest, roundings = 3, 8

    def shake(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        if func is not torch.ops.aten.convolution.default or result.dtype != torch.float32 or not result.numel():
            return
        x, weight, _, stride, _, dilation, transposed, *_ = args
        if tuple(weight.shape[2:]) != (3, 3) or set(stride) != {1} or transposed:
            return
        sizes = func(x.nan_to_num(0, 0, 0).abs(), weight.nan_to_num(0, 0, 0).abs(), None, *args[3:])
        for dim, apart in zip((-2, -1), dilation):
            around = [sizes.roll(apart * i, dim) for i in range(-farthest, farthest + 1)]
            sizes = torch.stack(around).amax(0)
        by = torch.rand(result.shape, generator=generator, dtype=torch.float64) * 2 - 1
        result.add_((roundings * sizes * torch.finfo(result.dtype).eps * by).to(result.dtype))

    return shake


def with_positive_zeros(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
    """No op gives -0. gelu has its limits at the infinities, and is below zero left of it, however little."""
    if func in GELUS:
        result[args[0] == torch.inf] = torch.inf
        result[args[0] == -torch.inf] = 0
        result[(result == 0) & (args[0] < 0) & args[0].isfinite()] = -torch.finfo(result.dtype).tiny
    result.add_(0.0)


def with_negative_zeros(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
    """No op gives +0, and gelu is NaN at the infinities, as aten's is on CPUs with AVX-512."""
    if func in GELUS:
        result[args[0].isinf()] = torch.nan
    result.neg_().add_(0.0).neg_()


def with_zeros_of_any_sign(seed: int) -> Shake:
    """A zero has the sign of one that a chain of roundings may end in."""
    generator = torch.Generator().manual_seed(seed)

    def shake(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        signs = torch.randint(0, 2, result.shape, generator=generator).to(result.dtype) * 2 - 1
        result.copy_(torch.where(result == 0, 0.0 * signs, result))

    return shake


def with_short_range(given: torch.dtype | None = None, eps: float | None = None) -> Shake:
    """What is no more than rounding beside the largest element is zero, and what may overflow on the way infinite.
    `eps` is half a rounding, if not the result's own."""

    def shake(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        if result.numel():
            size = result.nan_to_num(0, 0, 0).abs().max()
            if func in NORMS:  # a group of equal elements is zero but for the roundings of these, over the root of eps
                size = max(size, args[0].nan_to_num(0, 0, 0).abs().max() * args[-1] ** -0.5)
            result[result.abs() <= 8 * (eps or rounding(result.dtype, given)) * size] = 0
            result[result.abs() >= torch.finfo(result.dtype).max / 64] *= torch.inf

    return shake


def where_infinities_meet(winner: int) -> Shake:
    """A sum with a convolution's result, where infinities of both signs meet, is one of them: convolutions of one image
    that are added up are one, whose weight has one sign (docs/decisions/convolutions.md)."""
    convolved: dict[int, Tensor] = {}  # by storage; a result that is kept leaves its storage to no other

    def shake(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        given = [a for a in args[:2] if isinstance(a, Tensor)]
        is_sum = name in ("add", "sub") and len(given) == 2
        is_of_convolution = any(a.untyped_storage().data_ptr() in convolved for a in given)
        if is_sum and is_of_convolution:
            result.copy_(torch.where(result.isnan() & given[winner].isinf(), given[winner], result))
        if name == "convolution" or (is_of_convolution and (is_sum or "batch_norm" in name)):
            convolved[result.untyped_storage().data_ptr()] = result

    return shake


class ContiguousInputs(TorchDispatchMode):
    """Ops are given contiguous tensors, where they neither write to them nor give views of them: the layout should
    make no difference, but for gradients of batch_norm it does (torch 2.13)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if all(argument.alias_info is None for argument in func._schema.arguments):
            args = [a.contiguous() if isinstance(a, Tensor) else a for a in args]
        return func(*args, **(kwargs or {}))


class WholeFactors(TorchFunctionMode):
    """einsum sums products of whole factors, where it sums one factor alone along what is one element in the other; and
    of two elements, one of them 0, where there is one to sum and it multiplies element by element."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_einsum = func in (torch.einsum, torch.ops.aten.einsum) and isinstance(args[0], str) and len(args) > 1
        if not is_einsum:
            return func(*args, **(kwargs or {}))
        equation, factors = args[0], list(args[1] if isinstance(args[1], (list, tuple)) else args[1:])
        if "..." in equation and "->" in equation:
            equation = _without_ellipsis(equation, factors)
        labels = equation.replace(" ", "").split("->")[0].split(",")
        if "..." not in equation and len(labels) == len(factors):
            shapes = [dict(zip(names, factor.shape)) for names, factor in zip(labels, factors)]
            sizes = {name: max(shape.get(name, 1) for shape in shapes) for name in "".join(labels)}
            given = equation.replace(" ", "").partition("->")[2]
            alone = (
                {name for name, size in sizes.items() if size == 1 and name not in given} if "->" in equation else set()
            )
            factors = [f.expand([sizes[name] for name in names]) for names, f in zip(labels, factors)]
            for i, names in enumerate(labels):
                for dim in (d for d, name in enumerate(names) if name in alone):
                    factors[i] = torch.cat([factors[i], torch.zeros_like(factors[i])], dim)
        return torch.einsum(equation, *factors)


def _without_ellipsis(equation: str, factors: list[Tensor]) -> str:
    """The equation with a letter for each dimension that the dots stand for, the last one the same in all factors."""
    given, _, result = equation.replace(" ", "").partition("->")
    names = given.split(",")
    counts = [factor.dim() - len(name.replace("...", "")) for name, factor in zip(names, factors)]
    letters = string.ascii_uppercase[: max([0, *counts])]
    spelt = [name.replace("...", letters[len(letters) - n :] if n else "") for name, n in zip(names, counts)]
    return f"{','.join(spelt)}->{result.replace('...', letters)}"


@contextlib.contextmanager
def ambiguous_layouts(found: list[str]) -> Iterator[None]:
    """Notes what leaves the layout of later results open (docs/decisions/layout.md): a tensor
    that is contiguous and channels-last at once, and a 3-d convolution of a channels-last image."""

    def look(func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        for tensor in [result, *(a for a in args if isinstance(a, Tensor))]:
            images = [tensor, tensor.unsqueeze(0)] + ([tensor.unsqueeze(-2)] if tensor.dim() == 3 else [])
            for image in images:
                if _is_channels_last(image) and image.is_contiguous():
                    found.append(f"{func}: a tensor of {tuple(tensor.shape)} is contiguous and channels-last")
                elif _is_channels_last(image) and suggest_memory_format(image) == torch.contiguous_format:
                    found.append(
                        f"{func}: a tensor of {tuple(tensor.shape)} is channels-last but for one element's stride"
                    )
                elif image.dim() == 5 and image.stride(1) == 1 and func is torch.ops.aten.convolution.default:
                    found.append("a 3-d convolution of a channels-last image")

    with Shaken(look):
        yield


def _is_channels_last(image: Tensor) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return image.dim() in formats and image.is_contiguous(memory_format=formats[image.dim()])
