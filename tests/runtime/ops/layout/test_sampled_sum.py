"""Images sampled at computed places, weighted and summed: aten's values, refusals and errors."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from support import assert_same, why_aten

ZEROS, BORDER, REFLECTION = 0, 1, 2
PADDINGS = {ZEROS: "zeros", BORDER: "border"}


def sample(x: Tensor, grid: Tensor, mode: int = 0, padding: int = ZEROS, align: bool = False) -> Tensor:
    """Sums of one sample each."""
    places = grid.flatten(1, 2)[:, :, None]
    ones = torch.ones(len(places), 1, *places.shape[1:3])
    found = torch.ops.ipex.sampled_sum([x], [places], ones, mode, padding, align, True)
    return found.view(*found.shape[:2], *grid.shape[1:3])


def assert_as_aten(x: Tensor, grid: Tensor, padding: int, align: bool, tolerance: float = 1e-5) -> None:
    expected = F.grid_sample(x, grid, padding_mode=PADDINGS[padding], align_corners=align)
    assert why_aten(lambda: sample(x, grid, 0, padding, align)) is None
    assert_same(sample(x, grid, 0, padding, align), expected, tolerance=tolerance)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("channels", [32, 33, 64])
def test_matches_aten(channels, padding, align):
    x = torch.randn(3, channels, 7, 9)
    for grid in (torch.randn(3, 5, 4, 2), torch.randn(3, 40, 3, 2), torch.randn(3, 2, 4, 5).permute(0, 3, 2, 1)):
        assert_as_aten(x, grid, padding, align)
        assert_as_aten(x.to(memory_format=torch.channels_last), grid, padding, align)
        assert_as_aten(x.transpose(2, 3)[..., 1:], grid, padding, align)


@pytest.mark.parametrize("padding", PADDINGS)
def test_at_and_beyond_the_edges(padding):
    at = torch.tensor([-3e38, -1e10, -1.5, -1.01, -1.0, -0.99, 0.0, 0.99, 1.0, 1.2, 1e10, 3e38])
    grid = torch.stack(torch.meshgrid(at, at, indexing="ij"), -1)[None]
    for align in (False, True):
        assert_as_aten(torch.randn(1, 32, 5, 6), grid, padding, align)
        assert_as_aten(torch.randn(1, 32, 1, 1), grid, padding, align)


@pytest.mark.parametrize("padding", PADDINGS)
def test_nan_and_infinity(padding):
    at = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.1])
    grid = torch.stack(torch.meshgrid(at, at, indexing="ij"), -1)[None]
    x = torch.randn(1, 32, 3, 3)
    assert_as_aten(x, grid, padding, align=False)
    x[0, 0, 1, 1], x[0, 1, 0, 2] = torch.nan, torch.inf
    assert_as_aten(x, torch.randn(1, 9, 9, 2), padding, align=True)


def test_threads_give_the_same():
    x, grid, before = torch.randn(2, 32, 20, 20), torch.randn(2, 100, 8, 2), torch.get_num_threads()
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(sample(x, grid))
    torch.set_num_threads(before)
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda x, g: sample(x, g, mode=1), "it is not bilinear"),
        (lambda x, g: sample(x, g, padding=REFLECTION), "it reflects"),
        (lambda x, g: sample(x.double(), g.double()), "an input is not a float32 CPU tensor"),
        (lambda x, g: sample(x.clone().requires_grad_(), g), "an input requires a gradient"),
        (lambda x, g: sample(x, g[:, :0]), "an input is empty"),
        (lambda x, g: sample(x[:, :31], g), "it has few channels"),
    ],
)
def test_leaves_the_rest_to_aten(call, reason):
    assert why_aten(lambda: call(torch.randn(1, 32, 5, 6), torch.randn(1, 3, 3, 2))) == reason


def test_raises_as_aten_does():
    with pytest.raises(RuntimeError, match="size"):
        sample(torch.randn(2, 4, 5, 6), torch.randn(1, 3, 3, 2))


def summed(images: list[Tensor], grids: list[Tensor], weights: Tensor, stacked: bool, padding: int = ZEROS) -> Tensor:
    return torch.ops.ipex.sampled_sum(images, grids, weights, 0, padding, False, stacked)


def expected_sum(images: list[Tensor], grids: list[Tensor], weights: Tensor, stacked: bool, padding: str) -> Tensor:
    samples = [F.grid_sample(x, g, padding_mode=padding, align_corners=False) for x, g in zip(images, grids)]
    joined = torch.stack(samples, -2).flatten(-2) if stacked else torch.cat(samples, -1)
    return (joined * weights).sum(-1)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 70])
def test_sum_matches_aten(rows, stacked, padding):
    images = [torch.randn(2, 36, 9, 8), torch.randn(2, 36, 4, 4).to(memory_format=torch.channels_last)]
    grids = [torch.randn(2, rows, 3, 2), torch.randn(2, rows, 3 if stacked else 5, 2)]
    grids[0][0, 0, 0, 0] = torch.nan
    grids[1][1, 0, 0] = 7
    weights = torch.randn(2, 1, rows, sum(g.size(2) for g in grids))
    for given in (weights, weights.transpose(2, 3).contiguous().transpose(2, 3)):
        assert why_aten(partial(summed, images, grids, given, stacked, padding)) is None
        expected = expected_sum(images, grids, given, stacked, PADDINGS[padding])
        assert_same(summed(images, grids, given, stacked, padding), expected, tolerance=1e-5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: w.expand(-1, 36, -1, -1), "its weights differ by channel"),
        (lambda w: w[..., :1], "its weights differ by channel"),
        (lambda w: w.double(), "its weights are not a float32 CPU tensor"),
        (lambda w: w.requires_grad_(), "its weights require a gradient"),
        (lambda w: w * torch.inf, "a weight is not finite"),
        (lambda w: w * torch.nan, "a weight is not finite"),
    ],
)
def test_sum_leaves_other_weights_to_aten(change, reason):
    images, grids = (
        [torch.randn(2, 36, 4, 4), torch.randn(2, 36, 6, 3)],
        [torch.randn(2, 5, 3, 2) * 2 for _ in range(2)],
    )
    weights = change(torch.randn(2, 1, 5, 6))
    assert why_aten(lambda: summed(images, grids, weights, stacked=True)) == reason
    expected = expected_sum(images, grids, weights, stacked=True, padding="zeros")
    assert_same(summed(images, grids, weights, stacked=True), expected, tolerance=1e-5)


def test_sum_of_images_that_do_not_go_together():
    images, grids = [torch.randn(2, 36, 4, 4), torch.randn(2, 36, 6, 3)], [torch.randn(2, 5, n, 2) for n in (3, 4)]
    with pytest.raises(RuntimeError, match="equal size"):
        summed(images, grids, torch.randn(2, 1, 5, 7), stacked=True)
    with pytest.raises(RuntimeError, match="as many grids as images"):
        summed(images, grids[:1], torch.randn(2, 1, 5, 7), stacked=True)
