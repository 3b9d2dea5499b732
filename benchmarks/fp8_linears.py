"""Times training steps of linears in FP8 beside float32 and bfloat16, in turn, on the CPU or a GPU.

    OMP_NUM_THREADS=1 python benchmarks/fp8_linears.py
    python benchmarks/fp8_linears.py --device cuda --rows 8192 --width 4096

Prints Markdown: a forward and a backward pass of a linear from --width to --width.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median

import torch
from torch import nn

from in_turn import median_ratio, times_in_turn
from ipex.quantization.fp8 import DelayedScaling, Format, fp8_autocast, prepare_fp8


def steps(rows: int, width: int, device: str) -> dict[str, Callable[[], object]]:
    """A step in each format."""
    x = torch.randn(rows, width, device=device, requires_grad=True)
    model = prepare_fp8(nn.Linear(width, width)).to(device)

    def step(autocast: bool, recipe: DelayedScaling | None) -> None:
        with torch.autocast(device, torch.bfloat16, enabled=autocast), fp8_autocast(recipe is not None, False, recipe):
            y = model(x)
        y.backward(torch.ones_like(y))
        if device == "cuda":
            torch.cuda.synchronize()

    hybrid, e5m2 = (DelayedScaling(fp8_format=kind, amax_history_len=16) for kind in (Format.HYBRID, Format.E5M2))
    return {
        "float32": lambda: step(False, None),
        "bfloat16 autocast": lambda: step(True, None),
        "FP8, HYBRID": lambda: step(False, hybrid),
        "FP8, HYBRID, bfloat16 autocast": lambda: step(True, hybrid),
        "FP8, E5M2": lambda: step(False, e5m2),
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {name}, {arguments.rows} rows of {arguments.width}\n")
    found = steps(arguments.rows, arguments.width, arguments.device)
    times = dict(zip(found, times_in_turn(arguments.seconds, list(found.values()))))
    print("| | ms | float32's time, as a multiple |\n|---|---|---|")
    for kind, own in times.items():
        print(f"| {kind} | {1e3 * median(own):.3f} | {median_ratio(times['float32'], own):.2f} |")


if __name__ == "__main__":
    main()
