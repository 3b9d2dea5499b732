"""Times models with quantised linears beside float32, in turn: linears alone, and models of `python -m ipex bench`.

    OMP_NUM_THREADS=1 python benchmarks/quantized_linears.py --onnxruntime

Prints Markdown. Weights are random, nothing is downloaded. ONNX Runtime takes part in float32 and with its own dynamic
int8 where it is asked for, and installed (benchmarks/requirements-peers.txt). `--only outliers` compares the formats of
weights on rows that have some much larger numbers, `--only rounding` on normally distributed ones in groups of 32.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import ipex
from in_turn import median_ratio, times_in_turn
from ipex.bench.models import MODELS

Module = Callable[..., Any]
LINEARS = [
    (rows, *widths) for rows in (1, 4, 16, 128) for widths in ((768, 768), (768, 3072), (3072, 768), (4096, 4096))
]


def variants(model: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, Module]:
    """The model in float32, which the others are compared with, and quantised."""
    quantization = ipex.quantization
    return {
        "float32": ipex.jit_optimize(model, inputs),
        "dynamic int8": quantization.dynamic(model, inputs),
        "weight-only int8": quantization.weight_only(model, inputs),
        "weight-only int4": quantization.weight_only(model, inputs, dtype="int4"),
        "weight-only int4, groups of 32": quantization.weight_only(model, inputs, dtype="int4", group_size=32),
        "weight-only bfloat16": quantization.weight_only(model, inputs, dtype="bfloat16"),
        "weight-only E4M3": quantization.weight_only(model, inputs, dtype="float8_e4m3fn"),
        "weight-only E4M3, groups of 32": quantization.weight_only(model, inputs, dtype="float8_e4m3fn", group_size=32),
        "weight-only E5M2": quantization.weight_only(model, inputs, dtype="float8_e5m2"),
    }


def of_onnxruntime(model: nn.Module, inputs: tuple[Tensor, ...], folder: Path) -> dict[str, Module]:
    """ONNX Runtime, in float32 and with its own dynamic int8."""
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, prepared, quantized = (folder / f"{name}.onnx" for name in ("plain", "prepared", "quantized"))
    torch.onnx.export(model, inputs, str(plain), dynamo=False, opset_version=17)
    quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
    quantize_dynamic(str(prepared), str(quantized), weight_type=QuantType.QInt8, per_channel=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    found: dict[str, Module] = {}
    for name, path in (("ONNX Runtime float32", prepared), ("ONNX Runtime dynamic int8", quantized)):
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        feed = {node.name: x.numpy() for node, x in zip(session.get_inputs(), inputs)}
        found[name] = lambda *_, session=session, feed=feed: torch.from_numpy(session.run(None, feed)[0])
    return found


def first_of(results: Any) -> Tensor:
    """Return the one that is compared."""
    return results if isinstance(results, Tensor) else results[0]


def measure(name: str, found: dict[str, Module], inputs: tuple[Tensor, ...], seconds: float) -> None:
    """Print a table."""
    exact = first_of(found["float32"](*inputs))
    times = dict(zip(found, times_in_turn(seconds, [partial(call, *inputs) for call in found.values()])))
    print(f"\n{name}\n\n| | ms | float32's time, as a multiple | error, relative |\n|---|---|---|---|")
    for variant, own in times.items():
        error = ((first_of(found[variant](*inputs)) - exact).norm() / exact.norm()).item()
        ratio = median_ratio(times["float32"], own)
        print(f"| {variant} | {1e3 * median(own):.3f} | {ratio:.2f} | {error:.1e} |", flush=True)


def outliers() -> None:
    """Print how far normally distributed numbers are rounded, beside some that are so many times larger."""
    formats = ("int8", "float8_e4m3fn", "float8_e5m2", "int4")
    print("\nerror of a weight, relative, without the outliers\n\n| times | " + " | ".join(formats) + " |")
    print("|---" * (1 + len(formats)) + "|")
    model, eye = nn.Linear(4096, 256, bias=False).eval(), torch.eye(4096)
    weight = torch.randn(256, 4096)
    is_outlier = torch.arange(4096) % 512 == 0
    for times in (1, 10, 30, 100):
        model.weight.copy_(torch.where(is_outlier, times * weight, weight))
        found = [ipex.quantization.weight_only(model, eye[:1], dtype=format)(eye).t() for format in formats]
        errors = [((own - weight)[:, ~is_outlier].norm() / weight[:, ~is_outlier].norm()).item() for own in found]
        print(f"| {times} | " + " | ".join(f"{error:.3f}" for error in errors) + " |", flush=True)


def rounding() -> None:
    """Print how far each format rounds normally distributed numbers, and how long that takes."""
    weight = torch.randn(4096, 4096)
    print("\nweights in groups of 32\n\n| | error, relative | ns a weight |\n|---|---|---|")
    for format in ("int8", "float8_e4m3fn", "int4", "int4 with offsets", "nf4"):
        form, _, offsets = format.partition(" ")
        start = time.perf_counter()
        codes, scales, shifts, values = torch.ops.ipex.round_weight(weight, form, 32, not offsets)
        seconds = time.perf_counter() - start
        groups = (codes.float() if values is None else values[codes.long()]).unflatten(1, (-1, 32))
        groups = (groups if shifts is None else groups - shifts.unsqueeze(2)) * scales.unsqueeze(2)
        error = (groups.flatten(1) - weight).norm() / weight.norm()
        print(f"| {format} | {error:.3f} | {seconds / weight.numel() * 1e9:.1f} |", flush=True)


@torch.no_grad()
def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="of timing, for each model; a linear gets a tenth")
    parser.add_argument(
        "--only",
        choices=("linears", "outliers", "rounding", *MODELS),
        action="append",
        help="these, a model or linears",
    )
    parser.add_argument("--onnxruntime", action="store_true")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {ipex.isa.current()}")
    names = arguments.only or ["linears", "gpt2_step", "bert_base", "vit_b16"]
    for rows, width_in, width_out in LINEARS if "linears" in names else []:
        model, x = nn.Linear(width_in, width_out).eval(), torch.randn(rows, width_in)
        title = f"linear, {rows} rows, {width_in} to {width_out}"
        measure(title, variants(model, (x,)), (x,), arguments.seconds / 10)
    if "outliers" in names:
        outliers()
    if "rounding" in names:
        rounding()
    for name in names:
        if name not in MODELS:
            continue
        model, inputs = MODELS[name].make(1)
        found = variants(model, inputs)
        with tempfile.TemporaryDirectory() as folder:
            if arguments.onnxruntime:
                found |= of_onnxruntime(model, inputs, Path(folder))
            measure(MODELS[name].title, found, inputs, arguments.seconds)


if __name__ == "__main__":
    main()
