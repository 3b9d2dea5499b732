"""One random network, quantised, against its reference. A case is a string of bytes."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import ipex
from fuzz import doubt
from fuzz.program import Choices
from fuzz.quantized_networks import EXACT_ACTIVATIONS, Drawing, Network
from fuzz.quantized_reference import Reference, attention_of, layers_of
from fuzz.stages import round_trip
from ipex.quantization import Prepared, Recipe, convert, prepare
from ipex.quantization._scales import Scale
from support import kinds

TRIES = 12  # to find an input of which no element is near the middle of two numbers
EXACT_OPS = (*EXACT_ACTIVATIONS, "convolution", "linear", "add", "add_", "cat", "max_pool", "pad", "zero_part")
INEXACT_OPS = ("gelu", "silu", "sigmoid", "tanh", "hardswish", "elu", "norm", "softmax", "matmul", "attention")


@dataclass
class Settings:
    """How a network is quantised and called."""

    recipe: Recipe
    saved: bool
    threads: int
    batch: int | None
    spread: float
    channels_last: bool


@dataclass
class Verdict:
    """`kind`: exact, to the bit; close; doubtful, where elements may be rounded to either side; nothing to quantise;
    eager raises; failed."""

    kind: str
    detail: str = ""


def settings_of(choose: Choices, plan: Any) -> Settings:
    layers = [f"layers.m{i}" for i, node in enumerate(plan.nodes, 1) if node.op in ("linear", "convolution")]
    return Settings(
        Recipe(
            choose.pick(("min_max", "mean_squared_error", "percentile", "moving_average")),
            float_layers=[name for name in layers if choose.chance(8)],
            smooth=0.5 if not plan.is_exact and choose.chance(20) else None,
        ),
        choose.chance(20),
        choose.pick((1, 1, 2)),
        choose.pick((None, None, None, 1, 4, 0)),
        choose.pick((1.0, 1.0, 3.0)),
        choose.chance(25),
    )


def power_of_two(scale: Scale) -> Scale:
    """A scale that is one, and not smaller."""
    larger = 2.0 ** math.ceil(math.log2(scale.scale))
    return Scale(larger, min(255, round(scale.zero_point * scale.scale / larger)))


def inputs_of(shape: Sequence[int], settings: Settings, is_exact: bool, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator) * settings.spread
    x = (x * 64).round() / 64 if is_exact else x
    last = settings.channels_last and x.dim() == 4
    return x.contiguous(memory_format=torch.channels_last) if last else x


def prepared_of(network: Network, shape: Sequence[int], settings: Settings) -> Prepared:
    is_exact = network.plan.is_exact
    calm = Settings(settings.recipe, False, 1, None, 1.0, settings.channels_last)
    seen = [inputs_of(shape, calm, is_exact, seed) for seed in (1000, 1001)]
    prepared = prepare(network, seen[0], settings.recipe)
    for x in seen:
        prepared(x)
    if is_exact:
        scales = {key: power_of_two(scale) for key, scale in prepared.scales().items()}
        prepared.scales = lambda: scales  # type: ignore[method-assign]
    return prepared


def check(data: bytes, ranks: Sequence[int] = (2,), attends: bool = False) -> Verdict:
    choose = Choices(data)
    plan = Drawing(choose, ranks, attends=attends).plan()
    settings = settings_of(choose, plan)
    network = Network(plan)
    try:
        network(torch.randn(plan.shapes[0]))
    except RuntimeError as error:  # as of a write to a tensor that repeats its elements
        return Verdict("eager raises", str(error))
    before = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                prepared = prepared_of(network, plan.shapes[0], settings)
            except ValueError as error:
                if "to quantise, got none" in str(error):
                    return Verdict("nothing to quantise")
                raise
            module = convert(prepared)
            reference = Reference(network, layers_of(module), attention_of(module))
            module = round_trip(module) if settings.saved else module
            return compare(network, module, reference, settings)
    finally:
        torch.set_num_threads(before)


def compare(network: Network, module: Any, reference: Reference, settings: Settings) -> Verdict:
    plan = network.plan
    shape = list(plan.shapes[0])
    shape[0] = shape[0] if settings.batch is None else settings.batch
    rounds = attention_rounds(module)
    floor = 5e-6 if any(node.op in INEXACT_OPS for node in plan.nodes) else 2e-6
    for attempt in range(TRIES):
        x = inputs_of(shape, settings, plan.is_exact, attempt)
        expected, numbers = reference.compute(x, torch.float64)
        narrow, narrow_numbers = reference.compute(x, torch.float32)
        given = copy.deepcopy(x)
        eager = results(network(given))
        actual = run(module, x, given)
        if (found := wrong_shape(actual, eager)) and not layout_is_open(network, x):
            return Verdict("failed", found)
        is_exact = plan.is_exact and all(
            torch.equal(a, b.double()) for a, b in zip([*expected, *numbers], [*narrow, *narrow_numbers])
        )
        if is_exact:
            for a, e in zip(actual, expected):
                if not torch.equal(a.double(), e):
                    return Verdict(
                        "failed", f"exact, off by {(a - e).abs().max():.3g}, input {attempt}: {difference(a, e)}"
                    )
            return Verdict("exact")
        if not rounds and not any(doubtful(a, b, floor) for a, b in zip(numbers, narrow_numbers)):
            for a, e, n in zip(actual, expected, narrow):
                allowed = 8 * largest(n - e) + 3 * floor * largest(e)
                if largest(a - e) > allowed:
                    return Verdict(
                        "failed",
                        f"off by {largest(a - e):.3g}, allowed {allowed:.3g}, largest {largest(e):.3g}, "
                        f"input {attempt}: {difference(a, e)}",
                    )
            return Verdict("close")
    for a, e in zip(actual, expected):
        if float((a - e).norm()) > 0.1 * float(e.norm()) + 1e-3:
            return Verdict("failed", f"doubtful, off by {largest(a - e):.3g}, largest {largest(e):.3g}")
    return Verdict("doubtful")


def attention_rounds(module: Any) -> bool:
    """Whether attention that computes in floats rounds its factors to bfloat16 here, as quantised models permit."""
    multiplies_pairs = ipex.isa.has_fast_avx512_bf16() or ipex.isa.has_amx()
    return multiplies_pairs and bool(kinds(module).keys() & {"ipex::attention", "ipex::scaled_dot_product_attention"})


def doubtful(numbers: Tensor, narrow: Tensor, floor: float) -> bool:
    """Whether an element may be rounded to either side, by how far float32 is from float64."""
    error = 4 * largest(narrow - numbers) + 255 * floor
    inside = (numbers > -0.5 - error) & (numbers < 255.5 + error)
    middle = ((numbers - numbers.floor()) - 0.5).abs()
    return bool((inside & (middle < error)).any())


def layout_is_open(network: Network, x: Tensor) -> bool:
    found: list[str] = []
    with doubt.ambiguous_layouts(found):
        network(copy.deepcopy(x))
    return bool(found)


def run(module: Any, x: Tensor, after: Tensor) -> tuple[Tensor, ...]:
    """The third call, since TorchScript compiles anew before it; the first must give the same. `after` is what eager
    makes of the input."""
    found = []
    with torch.no_grad():
        for _ in range(3):
            given = copy.deepcopy(x)
            found.append(results(module(given)))
            assert torch.equal(given, after), "the input is not what eager leaves"
    for a, b in zip(found[0], found[2]):
        assert torch.equal(a, b), "the third call gives another result"
    return found[2]


def results(found: Any) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def wrong_shape(actual: Sequence[Tensor], eager: Sequence[Tensor]) -> str:
    for a, e in zip(actual, eager):
        if a.dtype != e.dtype or a.shape != e.shape:
            return f"{a.dtype} {tuple(a.shape)}, eager {e.dtype} {tuple(e.shape)}"
        longer = [i for i, length in enumerate(e.shape) if length > 1]
        if e.numel() and any(a.stride(i) != e.stride(i) for i in longer):
            return f"strides {a.stride()}, eager {e.stride()}, shape {tuple(e.shape)}"
    return ""


def largest(x: Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


def difference(a: Tensor, e: Tensor) -> str:
    wrong = ((a.double() - e).abs() > 1e-6 * largest(e)).nonzero()
    return f"{len(wrong)} of {a.numel()} elements, the first at {wrong[0].tolist() if len(wrong) else []}"
