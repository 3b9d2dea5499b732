"""Times models in float32, in the math mode BF32 and in 16 bits, beside stock TorchScript, and checks the results.

    python benchmarks/low_precision.py --threads 16
    OMP_NUM_THREADS=1 python benchmarks/low_precision.py --threads 1 --batch 1 --clock process --fastest --openvino

Prints Markdown: a table of medians, of calls taken in turn; the largest errors against eager in float32, relative to
the largest element; what was left to aten; and the kernels that oneDNN chose. `--openvino` times OpenVINO besides,
where it is installed. Weights are random, nothing is downloaded.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from in_turn import CLOCKS, Clock, times_in_turn

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests")]

from resnet50 import resnet50  # noqa: E402
from zoo.inverted_residual import InvertedResidual, conv  # noqa: E402
from zoo.model import enliven  # noqa: E402

Call = Callable[[Tensor], Tensor]
Variant = Callable[[torch.jit.ScriptModule, nn.Module, Tensor], Call]


class MobileNetV2(nn.Module):
    """At its full size."""

    SETTINGS = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv(3, 32, 3, 2), nn.ReLU6(inplace=True)]
        width_in = 32
        for expansion, width, count, stride in self.SETTINGS:
            for i in range(count):
                layers.append(InvertedResidual(width_in, width, expansion, 3, stride if i == 0 else 1, nn.ReLU6))
                width_in = width
        self.features = nn.Sequential(*layers, *conv(320, 1280, 1), nn.ReLU6(inplace=True))
        self.classifier = nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Classify a batch of images."""
        return self.classifier(self.features(x).mean((2, 3)))


class EncoderLayer(nn.Module):
    """Attention and two linears; norms after them, as BERT has them, or before, as ViT has."""

    def __init__(self, width: int, heads: int, norm_first: bool) -> None:
        super().__init__()
        self.heads, self.norm_first = heads, norm_first
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def attend(self, x: Tensor) -> Tensor:
        """Spelled out for BERT, as one op for ViT."""
        shape = (x.shape[0], x.shape[1], self.heads, -1)
        q, k, v = (f(x).view(shape).transpose(1, 2) for f in (self.query, self.key, self.value))
        if self.norm_first:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5, -1) @ v
        return self.out(y.transpose(1, 2).reshape(x.shape))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        if self.norm_first:
            x = x + self.attend(self.first_norm(x))
            return x + self.narrow(F.gelu(self.wide(self.second_norm(x))))
        x = self.first_norm(x + self.attend(x))
        return self.second_norm(x + self.narrow(F.gelu(self.wide(x))))


class Bert(nn.Module):
    """BERT base, with its attention spelled out."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions, self.norm = nn.Embedding(30522, 768), nn.Embedding(512, 768), nn.LayerNorm(768)
        self.layers = nn.Sequential(*(EncoderLayer(768, 12, norm_first=False) for _ in range(12)))

    def forward(self, x: Tensor) -> Tensor:
        """Encode a batch of sentences."""
        return self.layers(self.norm(self.words(x) + self.positions.weight[: x.shape[1]]))


class ViT(nn.Module):
    """ViT base, 16x16 patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.positions = nn.Conv2d(3, 768, 16, stride=16), nn.Parameter(torch.randn(196, 768) * 0.02)
        self.layers = nn.Sequential(*(EncoderLayer(768, 12, norm_first=True) for _ in range(12)), nn.LayerNorm(768))
        self.classifier = nn.Linear(768, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Classify a batch of images."""
        return self.classifier(self.layers(self.patches(x).flatten(2).transpose(1, 2) + self.positions).mean(1))


def mlp() -> nn.Module:
    """Wide layers: at batch 1 they wait for memory."""
    widths = (1024, 4096, 4096, 4096, 1024)
    layers = [layer for a, b in zip(widths, widths[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def images(batch: int) -> Tensor:
    """Make noise in the shape of images."""
    return torch.randn(batch, 3, 224, 224)


def sentences(batch: int) -> Tensor:
    """Make sentences of 128 words."""
    return torch.randint(0, 30522, (batch, 128))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor], tuple[int, ...]]] = {
    "ResNet-50": (resnet50, images, (1, 16)),
    "MobileNet V2": (lambda: enliven(MobileNetV2()), images, (1, 16)),
    "BERT base": (Bert, sentences, (1, 8)),
    "ViT base": (ViT, images, (1, 8)),
    "MLP": (mlp, lambda batch: torch.randn(batch, 1024), (1, 256)),
}


def under_autocast(model: nn.Module, x: Tensor) -> torch.jit.ScriptModule:
    """Trace the model in bfloat16; the tracer can't follow cached casts."""
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        return torch.jit.trace(model, x, check_trace=False)


def openvino(precision: str, model: nn.Module, x: Tensor) -> Call:
    """OpenVINO, computing in f32 or bf16; results are read as what they are, without a copy."""
    import openvino as ov

    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": precision,
    }
    compiled = ov.Core().compile_model(ov.convert_model(model, example_input=x), "CPU", settings)
    return lambda x: torch.from_numpy(compiled([x.numpy()])[0])


# What is timed: the first is what others are compared with.
VARIANTS: dict[str, Variant] = {
    "ipex float32": lambda traced, model, x: ipex.jit_optimize(traced),
    "stock float32": lambda traced, model, x: torch.jit.freeze(traced),
    "ipex BF32": lambda traced, model, x: ipex.jit_optimize(traced, fp32_math_mode=ipex.FP32MathMode.BF32),
    "ipex bfloat16": lambda traced, model, x: ipex.jit_optimize(traced, dtype=torch.bfloat16),
    "stock autocast bfloat16": lambda traced, model, x: torch.jit.freeze(under_autocast(model, x)),
    "ipex of that trace": lambda traced, model, x: ipex.jit_optimize(under_autocast(model, x)),
    "ipex float16": lambda traced, model, x: ipex.jit_optimize(traced, dtype=torch.float16),
}
PEERS: dict[str, Variant] = {
    "OpenVINO f32": lambda traced, model, x: openvino("f32", model, x),
    "OpenVINO bf16": lambda traced, model, x: openvino("bf16", model, x),
}


def is_native(variant: str) -> bool:
    """Whether the CPU computes in the variant's dtype; elsewhere a call may take minutes."""
    if "float16" not in variant and variant != "ipex of that trace":
        return True
    return ipex.isa.has_fp16() if variant.endswith(" float16") else ipex.isa.has_bf16()


def build(name: str, batch: int, variants: list[str]) -> tuple[nn.Module, Tensor, dict[str, Call]]:
    """Build a model, an input, and the model's variants."""
    torch.manual_seed(0)
    make, make_input, _ = MODELS[name]
    model, x = make().eval(), make_input(batch)
    traced = torch.jit.trace(model, x, check_trace=False)
    return model, x, {variant: (VARIANTS | PEERS)[variant](traced, model, x) for variant in variants}


@dataclasses.dataclass
class Timing:
    """How calls are timed, and which of their times is told."""

    seconds: float
    clock: Clock
    of_times: Callable[[list[float]], float]

    def milliseconds(self, models: dict[str, Call], x: Tensor) -> dict[str, float]:
        """Return the time of each."""
        found = times_in_turn(self.seconds, [partial(model, x) for model in models.values()], self.clock)
        return {name: 1e3 * self.of_times(own) for name, own in zip(models, found)}


def reasons_of(module: Call) -> set[str]:
    """Return why packed ops of a module left calls to aten."""
    contexts = [getattr(module, f"packed_{i}", None) for i in range(1000)]
    return {reason for context in contexts if context is not None for reason in context.fallback_reasons()}


MARKER = "variant: "


def row(cells: list[str]) -> str:
    """Join the cells of a table's row."""
    return "| " + " | ".join(cells) + " |"


def measure(names: list[str], variants: list[str], batches: list[int], timing: Timing) -> None:
    """Print the tables."""
    errors: list[list[str]] = []
    left: dict[str, set[str]] = collections.defaultdict(set)
    columns = list(VARIANTS) + [v for v in variants if v in PEERS]
    print(row(["model", "batch", *(f"{v}, ms" for v in columns)]))
    print(row(["---"] * (2 + len(columns))))
    for name in names:
        for batch in batches or MODELS[name][2]:
            model, x, models = build(name, batch, variants)
            exact = model(x)
            largest = exact.abs().max()
            off = {v: ((m(x).float() - exact).abs().max() / largest).item() for v, m in models.items()}
            milliseconds = timing.milliseconds(models, x)
            base = milliseconds["ipex float32"]
            cells = [f"{ms:.2f} ({base / ms:.2f}x)" if ms else "not native" for ms in map(milliseconds.get, columns)]
            print(row([name, str(batch), *cells]), flush=True)
            errors.append([name, str(batch), *(f"{off[v]:.1e}" if v in off else "" for v in columns)])
            for variant, module in models.items():
                left[variant] |= {f"{name}: {reason}" for reason in reasons_of(module)}
    print(f"\n{torch.get_num_threads()} threads, torch {torch.__version__}. In brackets: speed against ipex float32.\n")
    print(row(["largest error", "batch", *columns]))
    print(row(["---"] * (2 + len(columns))))
    print("\n".join(map(row, errors)))
    print("\nLeft to aten:\n")
    print("\n".join(f"- {v}: {reason}" for v in left for reason in sorted(left[v])) or "- nothing")


def list_kernels(names: list[str], variants: list[str], threads: int) -> None:
    """Print which kernels oneDNN ran, as a process of its own says that was told to talk."""
    print("\n" + row(["model", "variant", "kernels of oneDNN, with the number of calls"]))
    print(row(["---"] * 3))
    for name in names:
        done = subprocess.run(
            [sys.executable, __file__, "--threads", str(threads), "--model", name, "--run", ",".join(variants)],
            env={**os.environ, "ONEDNN_VERBOSE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            print(row([name, "failed", done.stderr.strip()[-300:]]))
        for part in done.stdout.split(MARKER)[1:]:
            variant, *lines = part.splitlines()
            seen: collections.Counter[str] = collections.Counter()
            for fields in (line.split(",") for line in lines if ",primitive,exec,cpu," in line):
                kind, kernel = fields[fields.index("cpu") + 1 :][:2]
                if kind in ("convolution", "deconvolution", "matmul", "inner_product", "reorder"):
                    seen[f"{kind} {kernel}"] += 1
            text = ", ".join(f"{count} {kernel}" for kernel, count in seen.most_common())
            print(row([name, variant, text]), flush=True)


def run_with_markers(name: str, variants: list[str]) -> None:
    """Call each variant once, for list_kernels to read what oneDNN says meanwhile."""
    _, x, models = build(name, 1, variants)
    for variant, model in models.items():
        print(f"{MARKER}{variant}", flush=True)
        model(x)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=3, help="of timing, for each model and batch")
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="process: on a machine with other work")
    parser.add_argument("--fastest", action="store_true", help="tell fastest calls instead of medians")
    parser.add_argument("--batch", type=int, action="append", default=[], help="each model's own, unless given")
    parser.add_argument("--openvino", action="store_true")
    parser.add_argument("--no-kernels", action="store_true", help="leave out which kernels oneDNN chose")
    parser.add_argument("--model", action="append", choices=MODELS, help="all, unless given")
    parser.add_argument("--all", action="store_true", help="time what the CPU has no instructions for, too")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_grad_enabled(False)
    torch.set_num_threads(arguments.threads)
    names = arguments.model or list(MODELS)
    if arguments.run:
        return run_with_markers(names[0], arguments.run.split(","))
    variants = [v for v in VARIANTS if arguments.all or is_native(v)]
    of_times = min if arguments.fastest else statistics.median
    timed = variants + (list(PEERS) if arguments.openvino else [])
    measure(names, timed, arguments.batch, Timing(arguments.seconds, CLOCKS[arguments.clock], of_times))
    if not arguments.no_kernels:
        list_kernels(names, [v for v in variants if v.startswith("ipex")], arguments.threads)


if __name__ == "__main__":
    main()
