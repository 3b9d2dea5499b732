"""Shows what lstm and embedding_bag could gain from 8-bit weights. Prints Markdown:

    OMP_NUM_THREADS=1 python benchmarks/int8_recurrent.py

There are no such kernels. An lstm's products are done by `ipex::dynamic_linear_run`, one for the inputs of all steps
and one for each step: without gates, so that an int8 lstm would take longer, but with a call for each step. A table of
int8 rows is stood in for by one of float32 rows a quarter as wide, which reads as many bytes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import ipex
from in_turn import times_in_turn

LAYERS = ((1, 16, 256), (1, 64, 512), (1, 64, 1024), (8, 64, 512), (32, 64, 512))  # batch, steps, width


def show(title: str, calls: dict[str, Callable[[], object]]) -> None:
    """Print a row for each."""
    times = times_in_turn(2.5, list(calls.values()), time.thread_time)
    for name, own in zip(calls, times):
        print(f"| {title} | {name} | {min(own) * 1e6:.0f} | {statistics.median(own) * 1e6:.0f} |", flush=True)


def lstm(batch: int, steps: int, width: int) -> dict[str, Callable[[], object]]:
    """Return an lstm in float32 and with bfloat16 weights, and the products of an int8 one."""
    model, x = nn.LSTM(width, width, batch_first=True).eval(), torch.randn(batch, steps, width)
    optimized = ipex.jit_optimize(model, x)
    pack = torch.ops.ipex.dynamic_linear_prepack
    inputs, states = (pack(w.detach(), None, []) for w in (model.weight_ih_l0, model.weight_hh_l0))
    state = torch.randn(batch, width)
    run = torch.ops.ipex.dynamic_linear_run

    def in_bfloat16() -> object:
        with ipex.fp32_math_mode(ipex.FP32MathMode.BF32):
            return optimized(x)

    def int8_products() -> None:
        run(x, inputs, [], True)
        for _ in range(steps):
            run(state, states, [], True)

    return {"float32": lambda: optimized(x), "BF32": in_bfloat16, "int8, products": int8_products}


def bags() -> dict[str, Callable[[], object]]:
    """Return DLRM's kind of bag: 2048 bags of 20 of a million rows of 128."""
    rows = torch.randint(0, 1_000_000, (2048, 20))
    wide, narrow = torch.randn(1_000_000, 128), torch.randn(1_000_000, 32)
    calls: dict[str, Callable[[], object]] = {}
    for name, table in (("float32 rows", wide), ("a quarter of the bytes", narrow)):
        model = ipex.jit_optimize(nn.EmbeddingBag.from_pretrained(table, mode="sum").eval(), rows)
        calls[name] = lambda model=model: model(rows)
    return calls


def main() -> None:
    """Print a table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("| | | fastest, us | median, us |\n|---|---|---|---|")
    with torch.no_grad():
        for batch, steps, width in LAYERS:
            show(f"lstm, batch {batch}, {steps} steps, {width} wide", lstm(batch, steps, width))
        show("embedding_bag", bags())


if __name__ == "__main__":
    main()
