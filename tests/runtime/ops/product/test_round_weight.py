"""Rounding weights to 4 bits: never worse than by the whole range of a group, and how much better on normal numbers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from support import own_thread_count


def numbers(weight: Tensor, format: str, size: int, symmetric: bool) -> Tensor:
    """What the codes stand for."""
    codes, scales, offsets, values = torch.ops.ipex.round_weight(weight, format, size, symmetric)
    assert codes.shape == weight.shape
    plain = codes.float() if values is None else values[codes.long()]
    groups, size = scales.shape[1], size or weight.shape[1]
    grouped = F.pad(plain, (0, groups * size - weight.shape[1])).unflatten(1, (groups, size))
    if offsets is not None:
        grouped = grouped - offsets.unsqueeze(2)
    return (grouped * scales.unsqueeze(2)).flatten(1)[:, : weight.shape[1]]


def by_range(weight: Tensor, format: str, size: int, symmetric: bool) -> Tensor:
    """The largest number of a group gets the largest code, and without symmetry the smallest the smallest."""
    groups = weight.unflatten(1, (-1, size))
    if format == "nf4":
        values = torch.ops.ipex.round_weight(weight, format, size, True)[3]
        scale = groups.abs().amax(2, keepdim=True)
        return (values[((groups / scale).unsqueeze(-1) - values).abs().argmin(-1)] * scale).flatten(1)
    if symmetric:
        scale = groups.abs().amax(2, keepdim=True) / 7
        return ((groups / scale).round().clamp(-8, 7) * scale).flatten(1)
    low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
    scale = (high - low) / 15
    return (((groups - low) / scale).round() * scale + low).flatten(1)


def errors(found: Tensor, weight: Tensor, size: int) -> Tensor:
    """The sum of squares of each group."""
    return (found - weight).double().square().unflatten(1, (-1, size)).sum(2)


@pytest.mark.parametrize(
    ("format", "symmetric", "size", "most"),
    [
        ("int4", False, 32, 0.84),
        ("int4", False, 8, 0.75),
        ("int4", True, 32, 0.72),
        ("int4", True, 128, 0.72),
        ("nf4", True, 32, 0.79),
        ("nf4", True, 64, 0.84),
    ],
)
def test_never_worse_than_by_the_range(format, symmetric, size, most):
    """`most` is of the sum of squared errors of normal numbers."""
    for seed, mean, power in ((1, 0.0, 1), (2, 0.7, 1), (3, 0.0, 3)):
        weight = (torch.randn(256, 256, generator=torch.Generator().manual_seed(seed)) + mean) ** power
        own = errors(numbers(weight, format, size, symmetric), weight, size)
        plain = errors(by_range(weight, format, size, symmetric), weight, size)
        assert (own <= plain * (1 + 1e-4) + 1e-9).all()
        if seed == 1:
            assert own.sum() < most * plain.sum()


@pytest.mark.parametrize("size", [64, 128, 0])
def test_large_groups_have_whole_offsets(size):
    """Tiles take these codes as they are."""
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(1)) + 0.5
    offsets = torch.ops.ipex.round_weight(weight, "int4", size, False)[2]
    assert torch.equal(offsets, offsets.round())
    assert offsets.abs().max() < 128
    plain = by_range(weight, "int4", size or 256, False)
    assert (numbers(weight, "int4", size, False) - weight).norm() < (plain - weight).norm()
    small = torch.ops.ipex.round_weight(weight, "int4", 32, False)[2]
    assert not torch.equal(small, small.round())


def test_a_grid_is_found_again():
    """Weights that were rounded before, in the same groups."""
    codes = torch.randint(-8, 8, (64, 8, 32)).float()
    codes[..., 0], codes[..., 1] = -8, 7
    grid = ((codes + torch.rand(64, 8, 1) * 9) * (torch.rand(64, 8, 1) + 0.5)).flatten(1)
    torch.testing.assert_close(numbers(grid, "int4", 32, False), grid, rtol=1e-5, atol=1e-5)
    values = torch.ops.ipex.round_weight(grid, "nf4", 32, True)[3]
    places = torch.randint(16, (64, 8, 32))
    places[..., 0] = 15
    table = (values[places] * -(torch.rand(64, 8, 1) + 0.5)).flatten(1)  # a negative scale
    torch.testing.assert_close(numbers(table, "nf4", 32, True), table, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("format", "symmetric"), [("int4", True), ("int4", False), ("nf4", True), ("int8", False)])
def test_odd_numbers(format, symmetric):
    """All the same, zero, next to nothing, the largest floats, and groups and rows that end early."""
    for value in (0.0, 3.0, -2.0, 1e-38, 3e38):
        weight = torch.full((2, 37), value)
        found = numbers(weight, format, 8, symmetric)
        torch.testing.assert_close(found, weight, rtol=1e-2 if format == "int8" else 1e-5, atol=1e-38)
    weight = torch.randn(3, 37)
    weight[0, :8], weight[1, 8:16] = 3e38, -3e38
    weight[0, 3], weight[2, 36] = -3e38, 1e-30
    assert (numbers(weight, format, 8, symmetric) - weight).abs().max() < 3e38 / 4
    near = 1000 + torch.rand(4, 32) / 100  # offsets stay small enough for sums of floats
    if not symmetric:
        offsets = torch.ops.ipex.round_weight(near, format, 32, False)[2]
        assert offsets.abs().max() <= 2**16 + 8
    assert (numbers(near, format, 32, symmetric) - near).abs().max() < (4 if format == "int8" else 0.02)


def test_threads_change_nothing():
    weight = torch.randn(100, 200)
    with own_thread_count():
        torch.set_num_threads(1)
        alone = numbers(weight, "int4", 32, False)
        torch.set_num_threads(3)
        assert torch.equal(numbers(weight, "int4", 32, False), alone)


def test_what_is_refused():
    op = torch.ops.ipex.round_weight
    with pytest.raises(RuntimeError, match="expected one of int8, int4, nf4, .*, got 'int3'"):
        op(torch.randn(4, 32), "int3", 32, True)
    with pytest.raises(RuntimeError, match="expected a group_size of a multiple of 8, or 0 for whole rows, got 12"):
        op(torch.randn(4, 32), "int4", 12, True)
    with pytest.raises(RuntimeError, match="expected a non-empty, finite 2-D CPU weight of float32"):
        op(torch.full((4, 32), float("nan")), "int4", 32, True)
