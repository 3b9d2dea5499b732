"""From what an observer has seen to a scale and a zero point."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ._recipe import Recipe

_MOST = 255  # the largest 8-bit number


class Scale(NamedTuple):
    """value = (number - zero_point) * scale, of a tensor whose last dimension was multiplied by `factors`."""

    scale: float
    zero_point: int
    factors: torch.Tensor | None = None


def scale_of(statistics: dict[str, torch.Tensor], recipe: Recipe) -> Scale:
    """Return the scale of a tensor that was seen at least once."""
    if recipe.smooth is not None and "weight_magnitudes" in statistics:
        smoothed = _smoothed(statistics["magnitudes"], statistics["weight_magnitudes"], recipe.smooth)
        if smoothed is not None:
            return smoothed
    return _of_range(*_range(statistics, recipe))


def _of_range(low: float, high: float) -> Scale:
    low, high = min(low, 0.0), max(high, 0.0)  # zero is a number, so that padding is exact
    scale = (high - low) / _MOST
    if scale < torch.finfo(torch.float32).tiny:
        return Scale(1.0, 0)
    return Scale(scale, min(max(round(-low / scale), 0), _MOST))


def _range(statistics: dict[str, torch.Tensor], recipe: Recipe) -> tuple[float, float]:
    low, high, average_low, average_high = statistics["range"].tolist()
    if recipe.activations == "moving_average":
        return average_low, average_high
    if recipe.activations == "min_max":
        return low, high
    counts = statistics["histogram"].double()
    limit = statistics["limit"].item()
    step = 2 * limit / len(counts)
    if recipe.activations == "percentile":
        seen = counts.cumsum(0) / counts.sum()
        outside = (1 - recipe.percentile / 100) / 2
        first = int(torch.searchsorted(seen, torch.tensor(outside, dtype=torch.double), right=True))
        last = int(torch.searchsorted(seen, torch.tensor(1 - outside, dtype=torch.double)))
        return max(low, first * step - limit), min(high, (min(last, len(counts) - 1) + 1) * step - limit)
    return _range_of_least_error(counts, limit, low, high)


def _range_of_least_error(counts: torch.Tensor, limit: float, low: float, high: float) -> tuple[float, float]:
    there = counts.nonzero().flatten()
    step = 2 * limit / len(counts)
    values, weights = (there.double() + 0.5) * step - limit, counts[there]
    low, high = min(low, 0.0), max(high, 0.0)
    shares = torch.linspace(0.1, 1.0, 181, dtype=torch.double).unsqueeze(1)
    steps = (high - low) * shares / _MOST
    if steps[-1] == 0:
        return low, high
    zeros = (-low * shares / steps).round().clamp(0, _MOST)
    numbers = (values / steps + zeros).round().clamp(0, _MOST)
    errors = (((numbers - zeros) * steps - values) ** 2 * weights).sum(1)
    # Of equal ones the widest: the bins are too coarse to tell them apart.
    best = shares[len(shares) - 1 - int(errors.flip(0).argmin())].item()
    return low * best, high * best


def _smoothed(inputs: torch.Tensor, weights: torch.Tensor, alpha: float) -> Scale | None:
    """Multiply each channel so that inputs and weights are as even as `alpha` wants. None where a channel is empty."""
    if inputs.shape != weights.shape or not bool(torch.isfinite(inputs).all()):
        return None
    least = 1e-5
    factors = weights.double().clamp_min(least) ** (1 - alpha) / inputs.double().clamp_min(least) ** alpha
    largest = (inputs.double() * factors).max().item()
    if largest == 0:
        return None
    factors /= largest  # no number of a channel is far from one
    return Scale(1.0 / 127, 128, factors.float())
