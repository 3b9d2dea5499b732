"""Optimizers with the options that change what they compute, and models to train with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ipex.optim import Lamb, Lars
from ipex.optim.prepare import prepare

# For weights after 300 steps, relative to the largest of the parameter.
# A step of ours rounds each intermediate result once, as torch's does, though not always the same ones: a product and a
# sum may be one operation. That is a few halves of 2^-24 per step and element, and errors of different steps have
# different signs: 300 steps give about sqrt(300) * 4 * 2^-25 = 2e-6 of the weight. Adam's quotient of moments magnifies
# the rounding of small ones; ten times the estimate leaves room for it.
TOLERANCE = 2e-5

Make = Callable[[Iterable[Any]], torch.optim.Optimizer]

CASES: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=1e-2),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.1, weight_decay=1e-2),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "sgd_maximize": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-2, maximize=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "adagrad_all": lambda p: torch.optim.Adagrad(
        p, lr=0.05, lr_decay=1e-3, weight_decay=1e-2, initial_accumulator_value=0.1, maximize=True
    ),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "adam_all": lambda p: torch.optim.Adam(
        p, lr=1e-2, betas=(0.8, 0.95), eps=1e-6, weight_decay=1e-2, amsgrad=True, maximize=True
    ),
    "adam_tensor_lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(1e-2)),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "adamw_amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1, amsgrad=True),
    "lamb": lambda p: Lamb(p, lr=1e-2, weight_decay=0.1),
    "lamb_maximize": lambda p: Lamb(p, lr=1e-2, betas=(0.8, 0.95), maximize=True),
    "lars": lambda p: Lars(p, lr=1.0, momentum=0.9, weight_decay=0.1, trust_coefficient=0.02),
    "lars_all": lambda p: Lars(p, lr=1.0, momentum=0.9, nesterov=True, trust_coefficient=0.02, maximize=True),
}
# One of each class.
PLAIN = ("sgd_momentum", "adagrad", "adam", "adamw", "lamb", "lars")


def layers(*sizes: int) -> nn.Sequential:
    """Linears of these sizes, with norms and tanh between them."""
    found: list[nn.Module] = []
    for wide, narrow in zip(sizes, sizes[1:]):
        found += [nn.Linear(wide, narrow), nn.LayerNorm(narrow), nn.Tanh()]
    return nn.Sequential(*found)


def prepared(
    make: Make, model: nn.Module, dtype: torch.dtype | None = None, *, split: bool = True, fuse: bool = True
) -> torch.optim.Optimizer:
    """Return the optimizer of this model, prepared with it."""
    optimizer = make(model.parameters())
    assert prepare(model, optimizer, dtype, split, fuse) == []
    return optimizer


def set_gradients(models: Iterable[nn.Module], scale: float = 1.0) -> None:
    """Give all models the same random gradients, which bfloat16 holds exactly, in each parameter's dtype
    and on its device."""
    for same in zip(*(model.parameters() for model in models)):
        gradient = (torch.randn(same[0].shape) * scale).bfloat16()
        for parameter in same:
            parameter.grad = gradient.to(parameter)


# What floats there are: ordinary ones, all exponents, ties, the largest, zeros, infinities, NaN with payloads.
HARD = torch.tensor(
    [
        0,
        1,
        0x7FFF,
        0x8000,
        0x8001,
        0xFFFF,
        0x3F808000,
        0x3F818000,
        0x3F807FFF,
        0x7F7FFFFF,
        0x7F7F7FFF,
        0x7F800000,
        0x7F800001,
        0x7F808000,
        0x7FC00000,
        0x7FFFFFFF,
        0x00800000,
        0x007FFFFF,
        0x477FF000,
        0x33800001,
        0x38800000,
    ],
    dtype=torch.int64,
)


def step_alike(models: Sequence[nn.Module], optimizers: Iterable[torch.optim.Optimizer], steps: int) -> None:
    """Train models on the same gradients, which float16 holds too: it has fewer exponents than bfloat16."""
    for _ in range(steps):
        set_gradients(models)
        for model in models:
            for p in model.parameters():
                p.grad = p.grad.half().to(p.dtype)
        for optimizer in optimizers:
            optimizer.step()


def hard_floats() -> torch.Tensor:
    """Return these with both signs, and random bits."""
    random = torch.randint(0, 2**32, (10007,))
    bits = torch.cat([HARD, HARD + 2**31, random])
    return torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32).view(torch.float32)


def largest_difference(models: Iterable[nn.Module]) -> float:
    """Return how far two models' weights are apart, relative to the largest of the parameter."""
    first, second = models
    pairs = zip(first.state_dict().values(), second.state_dict().values())
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two float32 tensors hold the same bits, NaN and signs of zero included."""
    assert a.dtype == b.dtype == torch.float32
    return torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))


def assert_same_weights(first: nn.Module, second: nn.Module) -> None:
    """Every bit of every weight."""
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values()):
        assert same_bits(a, b), name
