"""Times lstm and gru in int8 beside float32 and BF32, and embeddings with int8 rows. Prints Markdown:

    OMP_NUM_THREADS=1 python benchmarks/int8_recurrent.py --onnxruntime

ONNX Runtime takes part with its own dynamic int8 lstm where it is asked for, and installed
(benchmarks/requirements-peers.txt); it has none for gru.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ipex
from in_turn import median_ratio, times_in_turn
from quantized_linears import of_onnxruntime

LAYERS = ((1, 16, 128), (1, 16, 256), (1, 64, 512), (1, 64, 1024), (8, 64, 512), (32, 64, 512), (64, 16, 256))
BAGS = ((1_000_000, 128), (1_000_000, 64), (100_000, 32), (1_000, 128))  # rows of the table, their width
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU}


class First(nn.Module):
    """A recurrent layer whose states nobody wants."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Return the results of all steps."""
        result: Tensor = self.layer(x)[0]
        return result


def show(
    title: str, x: Tensor, calls: dict[str, Callable[[Tensor], Any]], seconds: float, others: Sequence[Tensor] = ()
) -> None:
    """Print a row for each call; the first is what the others are compared with. `others` take turns with x."""

    def on_the_next(call: Callable[[Tensor], Any]) -> Callable[[], object]:
        inputs = cycle((x, *others))
        return lambda: call(next(inputs))

    times = times_in_turn(seconds, [on_the_next(call) for call in calls.values()], time.thread_time)
    exact = next(iter(calls.values()))(x)
    for (name, call), own in zip(calls.items(), times):
        error = ((call(x) - exact).norm() / exact.norm()).item()
        cells = (f"{min(own) * 1e6:.0f}", f"{statistics.median(own) * 1e6:.0f}", f"{median_ratio(times[0], own):.2f}")
        print(f"| {title} | {name} | {' | '.join(cells)} | {error:.1e} |", flush=True)


def recurrent(kind: str, batch: int, steps: int, width: int, seconds: float, onnxruntime: bool) -> None:
    """Compare a layer of its kinds."""
    model, x = First(KINDS[kind](width, width, batch_first=True)).eval(), torch.randn(batch, steps, width)
    optimized = ipex.jit_optimize(model, x)

    def in_bfloat16(x: Tensor) -> Any:
        with ipex.fp32_math_mode(ipex.FP32MathMode.BF32):
            return optimized(x)

    calls = {"float32": optimized, "BF32": in_bfloat16, "dynamic int8": ipex.quantization.dynamic(model, x)}
    with tempfile.TemporaryDirectory() as folder:
        if onnxruntime and kind == "lstm":
            calls |= of_onnxruntime(model, (x,), Path(folder))
        show(f"{kind}, batch {batch}, {steps} steps, {width} wide", x, calls, seconds)


def embeddings(rows: int, width: int, seconds: float) -> None:
    """Compare DLRM's kind of bags, 2048 of 20 rows, and an embedding of as many rows."""
    # Several, so that their rows are not in cache from the call before.
    indices, *others = torch.randint(0, rows, (16, 2048, 20))
    table = torch.randn(rows, width)
    for mode in ("sum", "mean", "max"):
        bags = nn.EmbeddingBag.from_pretrained(table, mode=mode).eval()
        in_int8 = ipex.quantization.weight_only(bags, indices, embeddings=True)
        calls = {"float32": ipex.jit_optimize(bags, indices), "int8": in_int8}
        show(f"embedding_bag, {mode}, {rows} rows of {width}", indices, calls, seconds, others)
    model = nn.Embedding.from_pretrained(table).eval()
    in_int8 = ipex.quantization.weight_only(model, indices[:, :4], embeddings=True)
    calls = {"float32": ipex.jit_optimize(model, indices), "int8": in_int8}
    show(f"embedding, {rows} rows of {width}", indices, calls, seconds, others)


@torch.no_grad()
def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.5, help="of timing, for each case")
    parser.add_argument("--only", choices=("lstm", "gru", "embeddings"), action="append")
    parser.add_argument("--onnxruntime", action="store_true")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    only = arguments.only or ["lstm", "gru", "embeddings"]
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {ipex.isa.current()}\n")
    print(
        "| | | fastest, us | median, us | float32's time, as a multiple | error, relative |\n|---|---|---|---|---|---|"
    )
    for kind in KINDS:
        for batch, steps, width in LAYERS if kind in only else ():
            recurrent(kind, batch, steps, width, arguments.seconds, arguments.onnxruntime)
    for rows, width in BAGS if "embeddings" in only else ():
        embeddings(rows, width, arguments.seconds)


if __name__ == "__main__":
    main()
