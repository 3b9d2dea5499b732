"""Looks for 16-bit products and convolutions in which a NaN or infinity reaches a neighbour.

    PYTHONPATH=tests python tests/neighbours/search.py --cases 20000 --seed 1

Draws a layer and an input with a NaN or infinity in one row or pixel, and compares with float32. Prints a line per case
that differs, with the kernel that oneDNN took, and at the end a table: kind of layer, kernel, cases, how many differ.
Tests take a sample (tests/runtime/onednn/test_row_width.py). What is left to aten counts under that name: those are
eager's kernels.
"""

from __future__ import annotations

import argparse
import collections
import copy
import ctypes
import dataclasses
import os
import random
import sys
import tempfile
import warnings

if __name__ == "__main__":
    os.environ.setdefault("ONEDNN_VERBOSE", "1")

import torch
from torch import Tensor, nn

import ipex
from support import fallback_reasons

WIDTHS = [1, 3, 8, 13, 24, 31, 32, 33, 34, 40, 48, 63, 64, 65, 72, 80, 96, 100, 112, 144, 160, 257, 520]


class Matmul(nn.Module):
    """A product of two activations."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply."""
        return torch.matmul(a, b)


@dataclasses.dataclass
class Case:
    """A layer and what it is called with."""

    kind: str
    text: str
    layer: nn.Module
    inputs: list[Tensor]


def spoil(x: Tensor, rows: int, rng: random.Random) -> None:
    """Put NaN or infinity into one of the `rows` first indices of `x`, given as a view of rows."""
    value = rng.choice([float("nan"), float("inf"), float("-inf")])
    row = rng.randrange(rows)
    x[row] = value


def draw_linear(rng: random.Random) -> Case:
    width, out, rows = rng.choice(WIDTHS), rng.choice([1, 2, 8, 17, 64]), rng.choice([2, 5, 17, 33, 40, 64, 100])
    x = torch.randn(rows, width)
    spoil(x, rows, rng)
    return Case("linear", f"{rows}x{width} to {out}", nn.Linear(width, out), [x])


def draw_matmul(rng: random.Random) -> Case:
    width, out, rows = rng.choice(WIDTHS), rng.choice([1, 2, 8, 17, 64]), rng.choice([2, 16, 17, 33, 40, 64, 100])
    batch = rng.choice([[], [1], [3], [2, 3]])
    a, b = torch.randn([*batch, rows, width]), torch.randn([*batch, width, out])
    spoil(a.view(-1, width), a.numel() // width, rng)
    if rng.random() < 0.3:
        b = b.transpose(-1, -2).contiguous().transpose(-1, -2)
    return Case("matmul", f"{list(a.shape)} by {list(b.shape)}", Matmul(), [a, b])


def draw_convolution(rng: random.Random) -> Case:
    rank, transposed = rng.choice([1, 2, 2, 2, 3]), rng.random() < 0.3
    groups, out = rng.choice([1, 1, 1, 2, 4]), rng.choice([1, 3, 8, 16, 33, 64])
    channels = rng.choice([1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 15, 16, 17, 24, 32, 33, 34, 40, 48, 63, 80, 100])
    window = [rng.choice([1, 1, 2, 3, 3, 5, 7]) for _ in range(rank)]
    if rng.random() < 0.5:
        window = window[:1] * rank
    stride, dilation = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 1, 2])
    padding = [rng.randrange(1 + max(0, dilation * (side - 1))) for side in window]
    if transposed or rng.random() < 0.3:
        padding = [0] * rank
    longest = {1: 90, 2: 60 if channels < 20 else 30, 3: 9}[rank]
    size = [rng.randrange(dilation * (side - 1) + 1, longest + dilation * (side - 1)) for side in window]
    images = rng.choice([1, 2])
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{rank}d")
    layer = kind(channels * groups, out * groups, window, stride, padding, dilation=dilation, groups=groups)
    x = torch.randn([images, channels * groups, *size])
    pixels = x.flatten(2).permute(0, 2, 1)
    for _ in range(2):
        spoil(pixels[rng.randrange(images)], pixels.size(1), rng)
    pixel = "pixels" if set(window) == {1} else "windows"
    name = f"{'transposed ' if transposed else ''}{rank}-d {pixel}{' in groups' if groups > 1 else ''}"
    return Case(name, f"{list(x.shape)} {layer}", layer, [x])


def draw(rng: random.Random) -> Case:
    """Draw a case. Products of single pixels and windows of few channels come more often than by chance."""
    torch.manual_seed(rng.randrange(1 << 30))
    return rng.choice([draw_linear, draw_matmul, draw_convolution, draw_convolution])(rng)


ATEN = "left to aten"


def difference(case: Case, dtype: torch.dtype) -> tuple[str, bool]:
    """What the optimised layer gives that float32 doesn't, empty where they agree; whether it was left to aten."""
    layer = copy.deepcopy(case.layer).to(dtype).eval()
    inputs = [x.to(dtype) for x in case.inputs]
    with torch.no_grad():
        expected = layer.float()(*[x.float() for x in inputs])
        optimized = ipex.jit_optimize(torch.jit.trace(layer.to(dtype), tuple(inputs), check_trace=False))
        for x in inputs[:1]:  # scratch memory of the call before is full of them
            optimized(torch.full_like(x, torch.nan), *inputs[1:])
        result = optimized(*inputs).float()
    return compare(result, expected, torch.finfo(dtype).max), bool(fallback_reasons(optimized))


def compare(result: Tensor, expected: Tensor, highest: float) -> str:
    """In words; results that 16 bits hardly hold don't count."""
    finite = expected.isfinite() & (expected.abs() < highest / 2)
    if not torch.equal(result.isfinite() | ~finite, torch.ones_like(finite)):
        return f"{int((finite & ~result.isfinite()).sum())} of {int(finite.sum())} finite results are not"
    if bool(((expected.isnan()) & ~result.isnan()).any()):
        return "a NaN is lost"
    apart = (result - expected)[finite].abs()
    allowed = 0.05 + 0.05 * expected[finite].abs()
    return f"off by {float(apart.max()):.2g}" if bool((apart > allowed).any()) else ""


class Verbose:
    """What oneDNN prints goes to a file, from which the name of the last kernel is read."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None)
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process)
        sys.stdout.flush()
        self.out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(self.file.fileno(), 1)

    def last_kernel(self) -> str:
        """Name the kernel of the last product or convolution, and forget what was printed."""
        self.libc.fflush(None)
        self.file.seek(0)
        lines = [line.split(",") for line in self.file.read().decode(errors="replace").splitlines()]
        self.file.seek(0)
        self.file.truncate()
        names = ("matmul", "convolution", "deconvolution", "inner_product")
        kernels = [line[6] for line in lines if len(line) > 6 and line[3] == "exec" and line[5] in names]
        return kernels[-1] if kernels else "none"


def main() -> None:
    """Search, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float16"])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    verbose = Verbose()
    counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
    spread: collections.Counter[tuple[str, str, str]] = collections.Counter()
    for i in range(arguments.cases):
        rng = random.Random(f"{arguments.seed} {i}")
        case, dtype = draw(rng), rng.choice(arguments.dtypes)
        verbose.last_kernel()
        try:
            what, is_atens = difference(case, getattr(torch, dtype))
        except RuntimeError as error:
            what, is_atens = str(error).splitlines()[0], False
        key = (case.kind, dtype, ATEN if is_atens else verbose.last_kernel())
        counts[key] += 1
        if what:
            spread[key] += 1
            print(f"case {i}: {dtype} {case.text}: {what} [{key[2]}]", file=verbose.out)
    print(f"\n{'kind':<32} {'dtype':<9} {'kernel':<52} {'cases':>6} {'differ':>6}", file=verbose.out)
    for key in sorted(counts):
        print(f"{key[0]:<32} {key[1]:<9} {key[2]:<52} {counts[key]:6} {spread[key]:6}", file=verbose.out)
    sys.exit(1 if any(spread[key] for key in spread if key[2] != ATEN) else 0)


if __name__ == "__main__":
    main()
