"""Rows of a mixture in the order of their experts, and back: our two ops beside the ops of aten that they are.

    OMP_NUM_THREADS=1 python benchmarks/mixture_rows.py

Fastest calls in microseconds of processor time, in turn, for texts of some tokens.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

import ipex  # noqa: F401  (registers the ops)

EXPERTS, USED, WIDTH = 32, 4, 1024


def by_aten(hidden: Tensor, chosen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """As a model of transformers has it."""
    ends = torch.bincount(chosen.flatten(), minlength=EXPERTS).cumsum(0).to(torch.int32)
    order = chosen.flatten().argsort(stable=True)
    weighted = hidden[order // USED] * weights.flatten()[order].unsqueeze(1)
    by_token = torch.zeros_like(weighted).index_copy(0, order, weighted)
    return by_token.view(-1, USED, WIDTH).sum(1), ends


def by_ours(hidden: Tensor, chosen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The same in two ops."""
    rows, order, ends = torch.ops.ipex.rows_by_expert(hidden, chosen, EXPERTS)
    return torch.ops.ipex.sum_of_experts(rows, order, weights), ends


def main() -> None:
    """Print the table."""
    print("| tokens | aten, us | ipex, us |\n|---:|---:|---:|")
    for tokens in (1, 8, 128):
        given = torch.randn(tokens, WIDTH), torch.rand(tokens, EXPERTS).topk(USED)[1], torch.rand(tokens, USED)
        functions = [torch.jit.trace(function, given, check_trace=False) for function in (by_aten, by_ours)]
        torch.testing.assert_close(functions[0](*given), functions[1](*given))
        fastest = [float("inf")] * 2
        for _ in range(30):
            for i, function in enumerate(functions):
                begin = time.process_time()
                for _ in range(50):
                    function(*given)
                fastest[i] = min(fastest[i], (time.process_time() - begin) / 50 * 1e6)
        print(f"| {tokens} | {fastest[0]:.1f} | {fastest[1]:.1f} |")


if __name__ == "__main__":
    with torch.no_grad():
        main()
