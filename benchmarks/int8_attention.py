"""Shows what attention could gain from products of 8-bit numbers, at BERT-base's size. Prints Markdown:

    OMP_NUM_THREADS=1 python benchmarks/int8_attention.py

There is no such kernel. Products of one head are done by `ipex::quantized_linear_run`, whose weight is packed already,
as keys and values never are. Softmax, and the rounding of what it gives, are ops of their own. A kernel for all of it
would save the calls, and have to pack.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import ipex
from in_turn import times_in_turn

HEADS, WORDS, WIDTH = 12, 128, 64


def products(rows: int, depth: int, columns: int) -> tuple[torch.Tensor, torch.ScriptObject]:
    """Return an input, and a context with a weight that is packed."""
    weight = torch.randint(-127, 128, (columns, depth), dtype=torch.int8)
    arguments = (weight, torch.ones(columns), None, [], [0.01, 128.0], [], [])
    return torch.randint(0, 256, (rows, depth), dtype=torch.uint8), torch.ops.ipex.quantized_linear_prepack(*arguments)


def main() -> None:
    """Print a row for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=WORDS)
    words = parser.parse_args().words
    query, key, value = (torch.randn(1, words, HEADS, WIDTH).transpose(1, 2) for _ in range(3))
    run = torch.ops.ipex.quantized_linear_run
    (q, scores), (p, values) = products(words, WIDTH, words), products(words, words, WIDTH)
    weights = torch.randn(1, HEADS, words, words)

    def attention() -> None:
        torch.ops.ipex.scaled_dot_product_attention(query, key, value, None, 0.0, False, None, False)

    def in_bfloat16() -> None:
        with ipex.fp32_math_mode(ipex.FP32MathMode.BF32):
            attention()

    def int8_products() -> None:
        for _ in range(HEADS):
            run(q, scores, [], True)
            run(p, values, [], True)

    calls = {
        "attention in float32": attention,
        "attention with products in bfloat16, as `convert` has it": in_bfloat16,
        "int8: the products": int8_products,
        "int8: softmax": lambda: torch.ops.ipex.softmax(weights, -1, None),
        "int8: rounding probabilities": lambda: torch.ops.ipex.quantize(weights, 1 / 255, 0),
    }
    with torch.no_grad():
        times = times_in_turn(6, list(calls.values()), time.thread_time)
    print("| | fastest, us | median, us |\n|---|---|---|")
    for name, own in zip(calls, times):
        print(f"| {name} | {min(own) * 1e6:.0f} | {statistics.median(own) * 1e6:.0f} |")


if __name__ == "__main__":
    main()
