"""Times attention as aten and as ipex compute it, called in turn. Prints Markdown:

OMP_NUM_THREADS=1 python benchmarks/attention.py
OMP_NUM_THREADS=1 python benchmarks/attention.py --dtype bfloat16
OMP_NUM_THREADS=1 python benchmarks/attention.py --fp32-math-mode BF32
"""

from __future__ import annotations

import argparse
import functools
import statistics

import torch
import torch.nn.functional as F

import ipex
from in_turn import median_ratio, times_in_turn

CASES = {  # batch, heads, queries, keys, width, causal, masked
    "BERT, 128 words": (1, 12, 128, 128, 64, False, True),
    "ViT, 197 patches": (1, 12, 197, 197, 64, False, False),
    "512 words": (1, 12, 512, 512, 64, False, False),
    "1024 words": (1, 12, 1024, 1024, 64, False, False),
    "784 pixels, of one product": (1, 16, 784, 784, 64, False, False),
    "1024 words, of one product": (1, 12, 1024, 1024, 64, False, False),
    "1024 words, causal": (1, 12, 1024, 1024, 64, True, False),
    "Swin, 64 windows of 49": (64, 4, 49, 49, 32, False, True),
    "Swin v2, 16 windows of 144": (16, 3, 144, 144, 32, False, True),
    "4096 pixels, 77 words": (1, 8, 4096, 77, 40, False, False),
    "256 words, 128 wide, causal": (1, 32, 256, 256, 128, True, False),
    "2048 words, 128 wide": (1, 2, 2048, 2048, 128, False, False),
    "4096 pixels": (1, 2, 4096, 4096, 64, False, False),
    "a step, 256 before": (1, 12, 1, 256, 64, False, False),
    "8 steps, 1024 before": (8, 12, 1, 1024, 64, False, True),
    "tiny": (2, 4, 16, 16, 16, False, False),
}
SECONDS_PER_CASE = 2.0


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--fp32-math-mode", choices=["FP32", "BF32"], default="FP32")
    options = parser.parse_args()
    random = functools.partial(torch.randn, dtype=getattr(torch, options.dtype))
    torch.manual_seed(0)
    ipex.set_fp32_math_mode(ipex.FP32MathMode[options.fp32_math_mode])
    print("| | aten, us | ipex, us | ratio |\n|---|---|---|---|")
    for name, (batch, heads, queries, keys, width, causal, masked) in CASES.items():
        if name.endswith("of one product"):  # rows of which lie three times as far apart
            query, key, value = random(batch, queries, 3, heads, width).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            query, key, value = (
                random(batch, length, heads, width).transpose(1, 2) for length in (queries, keys, keys)
            )
        mask = random(batch, 1, queries, keys) if masked else None
        own = torch.ops.ipex.scaled_dot_product_attention
        arguments = (query, key, value, mask, 0.0, causal)
        calls = [
            functools.partial(F.scaled_dot_product_attention, *arguments),
            functools.partial(own, *arguments, None, False),
        ]
        times = times_in_turn(SECONDS_PER_CASE, calls)
        stock, ours = (statistics.median(t) * 1e6 for t in times)
        print(f"| {name} | {stock:.0f} | {ours:.0f} | {median_ratio(times[0], times[1]):.2f} |", flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
