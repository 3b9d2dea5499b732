"""Kernels for 16 bits read beyond a row that doesn't fill their tiles: NaN and infinity of a neighbour stay there."""

import random

import pytest
import torch
from torch import nn

from neighbours.search import Case, Matmul, difference, draw

# What fills no whole tile of 32, read by kernels as rows of that many numbers.
CONVOLUTIONS = {
    "pixels": (nn.Conv2d(40, 24, 1), (2, 40, 20, 20)),
    "pixels, one result": (nn.Conv2d(144, 1, 1), (1, 144, 14, 14)),
    "pixels in groups": (nn.Conv2d(80, 48, 1, groups=2), (2, 80, 12, 12)),
    "every other pixel": (nn.Conv2d(48, 64, 1, stride=2), (1, 48, 17, 17)),
    "pixels, 1-d": (nn.Conv1d(72, 16, 1), (2, 72, 100)),
    "pixels, 3-d": (nn.Conv3d(34, 16, 1), (1, 34, 4, 7, 7)),
    "rows of 36": (nn.Conv2d(12, 32, 3, padding=1), (2, 12, 30, 30)),
    "rows of 42": (nn.Conv2d(14, 32, 3), (1, 14, 30, 30)),
    "rows of 50, 1-d": (nn.Conv1d(10, 16, 5, padding=2), (2, 10, 90)),
    "rows of 42, 3-d": (nn.Conv3d(14, 16, (1, 3, 3), padding=(0, 1, 1)), (1, 14, 1, 20, 20)),
    "rows in groups": (nn.Conv2d(48, 32, 3, padding=1, groups=4), (1, 48, 20, 20)),
    "rows of 44, moving by 4": (nn.Conv2d(3, 64, 11, stride=4, padding=2), (1, 3, 99, 99)),
    "windows of 36": (nn.Conv2d(3, 32, 3, stride=2, padding=1), (1, 3, 127, 127)),
    "windows of 54": (nn.Conv2d(6, 16, 3, padding=1), (1, 6, 64, 64)),
    "windows of 100": (nn.Conv2d(4, 32, 5, padding=2), (1, 4, 64, 64)),
    "windows in groups": (nn.Conv2d(32, 32, 3, padding=1, groups=8), (1, 32, 64, 64)),
    "columns of 42": (nn.Conv2d(14, 16, (3, 1), padding=(1, 0)), (1, 14, 64, 64)),
    "small images": (nn.Conv2d(24, 8, 3, padding=1), (4, 24, 2, 2)),
    "wide padding": (nn.Conv2d(20, 16, 3, padding=2), (2, 20, 20, 20)),
    "transposed pixels": (nn.ConvTranspose2d(40, 24, 1), (1, 40, 20, 20)),
    "transposed, odd": (nn.ConvTranspose2d(15, 16, (1, 3), stride=3), (1, 15, 20, 20)),
    "transposed, odd, in groups": (nn.ConvTranspose2d(30, 16, 3, groups=2), (1, 30, 8, 30)),
    "transposed": (nn.ConvTranspose2d(40, 24, 3, stride=2, padding=1), (1, 40, 15, 15)),
    "transposed, few channels": (nn.ConvTranspose2d(12, 24, 3, padding=1), (1, 12, 30, 30)),
}
DTYPES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize(
    ("dtype", "value"), [(torch.bfloat16, torch.nan), (torch.bfloat16, -torch.inf), (torch.float16, torch.nan)]
)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_of_pixels(name, dtype, value):
    layer, shape = CONVOLUTIONS[name]
    x = torch.randn(shape)
    pixels = x.flatten(2)
    pixels[0, :, pixels.size(2) // 2] = value
    pixels[-1, :, 0] = value
    pixels[-1, 0, -1] = value
    difference_to_float32, is_atens = difference(Case(name, name, layer, [x]), dtype)
    assert difference_to_float32 == "" or (is_atens and "odd" not in name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [33, 40, 63, 80, 257])
@pytest.mark.parametrize("rows", [17, 40, 100])
def test_of_rows(rows, width, dtype):
    for out in (1, 8, 64):
        x, batches = torch.randn(rows, width), torch.randn(2, rows, width)
        x[rows // 2 :: 20], batches[0, rows // 2], batches[1, 0] = torch.nan, torch.inf, torch.nan
        for case in (
            Case("linear", "", nn.Linear(width, out), [x]),
            Case("matmul", "", Matmul(), [batches, torch.randn(2, width, out)]),
        ):
            what, is_atens = difference(case, dtype)
            assert what == "" or is_atens, (case.kind, out)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sample_of_the_search(dtype):
    for seed in range(20):
        case = draw(random.Random(f"sample {seed}"))
        what, is_atens = difference(case, dtype)
        assert what == "" or is_atens, case.text
