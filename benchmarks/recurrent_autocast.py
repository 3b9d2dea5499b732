"""LSTM and GRU of `ipex.optimize` under autocast, against eager: how many times eager's time the packed layer takes.

    python benchmarks/recurrent_autocast.py

From the row count at which it exceeds 1, `packed/recurrent.py` leaves the call to torch on CPUs with fast bfloat16.
"""

from __future__ import annotations

import time

import torch
from torch import nn

import ipex
from ipex._optimize.packed import recurrent

ROUNDS = 5


def seconds(layer: nn.Module, x: torch.Tensor) -> float:
    """Return the shortest time of a few calls."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        layer(x)
        best = min(best, time.perf_counter() - begin)
    return best


def main() -> None:
    """Print a table."""
    recurrent.multiplies_bfloat16_fast = lambda: False  # the packed layer, however many rows there are
    print("| layer | width | rows | ipex / eager |\n|---|---|---|---|")
    for kind in (nn.LSTM, nn.GRU):
        for width in (64, 256, 1024):
            layer = kind(width, width, batch_first=True).eval()
            packed = ipex.optimize(layer)
            for rows in (1, 4, 8, 16, 32):
                x = torch.randn(rows, 20, width)
                with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                    pairs = [(seconds(packed, x), seconds(layer, x)) for _ in range(3)]
                ratio = sorted(ours / eager for ours, eager in pairs)[1]
                print(f"| {kind.__name__} | {width} | {rows} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
