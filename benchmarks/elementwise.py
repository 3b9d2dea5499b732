"""Times chains of elementwise ops as one op of ipex and as aten's ops, in turn, in TorchScript. Prints Markdown:

OMP_NUM_THREADS=1 python benchmarks/elementwise.py [NAMES OF CHAINS]
"""

from __future__ import annotations

import statistics
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from in_turn import median_ratio, times_in_turn

SECONDS_PER_CASE = 1.0
PASS = "fuse_elementwise"


def scaled_residual(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """As a layer scale has it."""
    return x * 1.0 + y * w


def gate(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """As gated linear units have it."""
    return F.silu(x) * (y * w)


def gelu_by_hand(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """A gelu that no pass knows, and a product."""
    return y * (0.5 * x * (1.0 + torch.tanh(0.8 * (x * w + 0.0447 * x.pow(3)))))


def rotary(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """As rotary embeddings have it."""
    return (x * w) + (y * (w - 1.0))


def decay(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """As state spaces have it."""
    return torch.exp(F.softplus(x) * -torch.exp(w)) * y


def excite(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """As squeeze and excite has it: the gate is small, and the image large."""
    return x + y * torch.sigmoid(w * 0.5)


def branches(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """An activation of two branches."""
    x = x * 1.0
    return torch.where(x > 0, x * x * w + y, (torch.expm1(x.clamp(max=-1e-6)) - x) * w + y)


def mask(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Scores of which some are left out."""
    return (x * 0.125).masked_fill(y > w, -torch.inf)


def cell(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A step of a recurrent model, which hands on three values."""
    before, now = x - 0.1, y * 0.5
    peak = torch.maximum(before, now)
    old, new = torch.exp(before - peak), torch.exp(now - peak)
    return old * y + new * w, old * w + new, peak


CHAINS = (scaled_residual, gate, gelu_by_hand, rotary, decay, excite, branches, mask, cell)
CASES = [  # x and y, w
    ((1, 16), (16,)),
    ((1, 16, 64), (64,)),
    ((1, 64, 256), (256,)),
    ((1, 197, 768), (768,)),
    ((1, 64, 56, 56), (64, 1, 1)),
    ((8, 196, 1024), (1024,)),
]


class Model(nn.Module):
    """A chain and nothing else."""

    def __init__(self, chain: object) -> None:
        super().__init__()
        self.chain = chain

    def forward(self, x: Tensor, y: Tensor, w: Tensor) -> object:
        """Compute the chain."""
        return self.chain(x, y, w)


def show(chain: object, shape: tuple[int, ...], width: tuple[int, ...], dtype: torch.dtype) -> None:
    """Time both, and print a row."""
    inputs = [torch.randn(s).to(dtype) for s in (shape, shape, width)]
    traced = torch.jit.trace(Model(chain).eval(), inputs, check_trace=False)
    ways = [ipex.jit_optimize(traced, disable=[PASS]), ipex.jit_optimize(traced)]
    calls = [lambda way=way: way(*inputs) for way in ways]
    found = times_in_turn(SECONDS_PER_CASE, calls)
    columns = [f"{1e6 * statistics.median(own):.1f}" for own in found] + [f"{median_ratio(*found):.2f}"]
    name = str(dtype).removeprefix("torch.")
    print(f"| {chain.__name__} | {'x'.join(map(str, shape))} | {name} | {' | '.join(columns)} |", flush=True)


def main(chains: list[str]) -> None:
    """A row per case."""
    print("| chain | of | dtype | aten, us | ipex, us | aten / ipex |")
    print("|---|---|---|---:|---:|---:|")
    for dtype in (torch.float32, torch.bfloat16):
        for chain in (c for c in CHAINS if not chains or c.__name__ in chains):
            for shape, width in CASES:
                show(chain, shape, width, dtype)


if __name__ == "__main__":
    # As long as there is a packed op, memory of results is kept.
    packed = ipex.jit_optimize(torch.jit.trace(nn.Linear(8, 8).eval(), torch.randn(1, 8)))
    with torch.inference_mode():
        main(sys.argv[1:])
