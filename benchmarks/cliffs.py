"""Finds sizes at which an op falls behind: layers of drawn sizes, optimised and in frozen TorchScript, called in turn.

    OMP_NUM_THREADS=1 python benchmarks/cliffs.py --cases 300 --seed 1
    OMP_NUM_THREADS=1 python benchmarks/cliffs.py --kinds attention linear --openvino

Kernels are tuned with the sizes of a few models, and fail with others: rows a power of two apart, one channel too
many, twice the words. So sizes are drawn, powers of two and odd ones alike. Prints Markdown: a row for each kind of
layer, and the cases in which frozen TorchScript, or OpenVINO where it is asked for, is faster. `--case` draws one anew.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from in_turn import CLOCKS, times_in_turn
from ipex.bench.backends import Job, find

Call = Callable[..., Any]
LONGEST = 0.1  # seconds of a call: what takes longer in frozen TorchScript is drawn anew


class Layer(NamedTuple):
    """What is timed."""

    text: str
    model: nn.Module
    inputs: tuple[Tensor, ...]


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Call) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        """Call it."""
        return self.function(*inputs)


class Draw:
    """Sizes by a seed."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        torch.manual_seed(self.random.randrange(1 << 30))

    def size(self, least: int, most: int) -> int:
        """A power of two, a multiple of 8, or any number; small ones as often as large ones."""
        number = round(least * (most / least) ** self.random.random())
        kind = self.random.randrange(3)
        if kind == 0:
            number = 1 << (number.bit_length() - 1)
        elif kind == 1:
            number = -(-number // 8) * 8
        return max(least, min(most, number))

    def of(self, *choices: Any) -> Any:
        """One of these."""
        return self.random.choice(choices)

    def image(self, *sizes: int) -> Tensor:
        """In either layout."""
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        x = torch.randn(sizes)
        return x.to(memory_format=formats[len(sizes)]) if len(sizes) in formats and self.of(True, False) else x


def linear(draw: Draw) -> Layer:
    """A linear and an activation."""
    rows, wide, out = draw.size(1, 2048), draw.size(8, 4096), draw.size(8, 4096)
    after = draw.of(nn.Identity(), nn.ReLU(), nn.GELU(), nn.SiLU())
    name = type(after).__name__
    return Layer(
        f"{rows}x{wide} to {out}, {name}", nn.Sequential(nn.Linear(wide, out), after), (torch.randn(rows, wide),)
    )


def convolution(draw: Draw) -> Layer:
    """Of any rank, window, stride, dilation and groups."""
    rank = draw.of(1, 2, 2, 2, 2, 3)
    kind = [nn.Conv1d, nn.Conv2d, nn.Conv3d][rank - 1]
    size = draw.size(*[(16, 4096), (7, 160), (4, 32)][rank - 1])
    window, stride = draw.of(1, 3, 3, 5, 7), draw.of(1, 1, 2)
    dilation = draw.of(1, 1, 1, 2, 4) if window > 1 else 1
    groups = draw.of(1, 1, 1, draw.size(2, 32))
    width = draw.size(1, max(1, 512 // groups))
    channels, out = groups * width, groups * (width if groups > 1 else draw.size(8, 512))
    layer = kind(channels, out, window, stride, padding=dilation * (window // 2), dilation=dilation, groups=groups)
    x = draw.image(draw.of(1, 1, 4), channels, *[size] * rank)
    text = f"{list(x.shape)} to {out}, {window} by {stride}, dilation {dilation}, groups {groups}, {layout_of(x)}"
    return Layer(text, nn.Sequential(layer, nn.ReLU()), (x,))


def depthwise(draw: Draw) -> Layer:
    """A convolution with a group for each channel."""
    channels, window, size = draw.size(8, 1024), draw.of(3, 5, 7), draw.size(7, 112)
    stride, x = draw.of(1, 2), draw.image(draw.of(1, 4), channels, size, size)
    layer = nn.Conv2d(channels, channels, window, stride, padding=window // 2, groups=channels)
    return Layer(f"{list(x.shape)}, {window} by {stride}, {layout_of(x)}", nn.Sequential(layer, nn.ReLU6()), (x,))


def transposed(draw: Draw) -> Layer:
    """A transposed convolution."""
    channels, out, size = draw.size(4, 256), draw.size(4, 256), draw.size(4, 64)
    window, stride, x = draw.of(2, 3, 4), draw.of(1, 2), draw.image(1, channels, size, size)
    text = f"{list(x.shape)} to {out}, {window} by {stride}, {layout_of(x)}"
    return Layer(text, nn.ConvTranspose2d(channels, out, window, stride), (x,))


def attention(draw: Draw) -> Layer:
    """Heads from one product or three."""
    batch, heads, width = draw.of(1, 1, 2, 8), draw.size(1, 32), draw.of(16, 32, 40, 64, 64, 80, 128)
    queries = draw.size(1, 1500)
    keys = draw.of(queries, queries, draw.size(16, 1500))
    causal, joint = keys == queries and draw.of(True, False, False), keys == queries and draw.of(True, False)
    if joint:
        q, k, v = torch.randn(batch, queries, 3, heads, width).permute(2, 0, 3, 1, 4).unbind(0)
    else:
        q, k, v = (torch.randn(batch, n, heads, width).transpose(1, 2) for n in (queries, keys, keys))
    text = f"{batch}x{heads} heads, {queries} by {keys}, {width} wide{', causal' * causal}{', of one product' * joint}"

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)

    return Layer(text, Function(attend), (q, k, v))


def matmul(draw: Draw) -> Layer:
    """A batch of products of two activations."""
    batch, a, b, c = draw.size(1, 64), draw.size(1, 512), draw.size(4, 512), draw.size(4, 512)
    turned = draw.of(True, False)
    x, y = torch.randn(batch, a, b), torch.randn(batch, c, b).transpose(1, 2) if turned else torch.randn(batch, b, c)
    return Layer(f"{batch}x{a}x{b} by {c}{', transposed' * turned}", Function(torch.matmul), (x, y))


def norm(draw: Draw) -> Layer:
    """Of the last dimension."""
    rows, wide = draw.size(1, 4096), draw.size(8, 4096)
    kind = draw.of("layer_norm", "rms_norm", "softmax", "log_softmax", "normalize")
    models = {"layer_norm": lambda: nn.LayerNorm(wide), "rms_norm": lambda: nn.RMSNorm(wide)}
    functions = {"softmax": F.softmax, "log_softmax": F.log_softmax, "normalize": F.normalize}
    model = models[kind]() if kind in models else Function(lambda x: functions[kind](x, dim=-1))
    return Layer(f"{kind}, {rows}x{wide}", model, (torch.randn(rows, wide),))


def norm_of_image(draw: Draw) -> Layer:
    """Over groups, channels or pixels."""
    groups, size = draw.size(1, 32), draw.size(7, 112)
    channels, dimension = groups * draw.size(1, 512 // groups), draw.of(1, 2)
    x = draw.image(draw.of(1, 4), channels, size, size)
    kind = draw.of("group_norm", "instance_norm", "batch_norm", "layer_norm", "softmax")
    models: dict[str, Callable[[], nn.Module]] = {
        "group_norm": lambda: nn.GroupNorm(groups, channels),
        "instance_norm": lambda: nn.InstanceNorm2d(channels),
        "batch_norm": lambda: nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU()),
        "layer_norm": lambda: Function(lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (channels,)).permute(0, 3, 1, 2)),
        "softmax": lambda: Function(lambda x: F.softmax(x, dim=dimension)),
    }
    return Layer(f"{kind}, {list(x.shape)}, groups {groups}, {layout_of(x)}", models[kind](), (x,))


def pool(draw: Draw) -> Layer:
    """Of an image, or an image of another size."""
    x = draw.image(draw.of(1, 4), draw.size(3, 512), *[draw.size(7, 160)] * 2)
    window = draw.of(2, 3, 5)
    kind = draw.of("max", "mean", "adaptive", "global", "nearest", "bilinear", "bicubic")
    stride = draw.of(1, 2)
    functions: dict[str, Call] = {
        "max": lambda x: F.max_pool2d(x, window, stride, window // 2),
        "mean": lambda x: F.avg_pool2d(x, window, stride, window // 2),
        "adaptive": lambda x: F.adaptive_avg_pool2d(x, 6),
        "global": lambda x: x.mean((2, 3)),
        **{
            mode: lambda x, mode=mode: F.interpolate(x, scale_factor=float(window) / 2, mode=mode)
            for mode in ("nearest", "bilinear", "bicubic")
        },
    }
    return Layer(f"{kind}, {list(x.shape)}, {window} by {stride}, {layout_of(x)}", Function(functions[kind]), (x,))


def elementwise(draw: Draw) -> Layer:
    """A short chain, with what is broadcast."""
    rows, wide = draw.size(1, 4096), draw.size(8, 4096)
    other = torch.randn(draw.of((rows, wide), (rows, 1), (wide,), (1, wide)))
    chains: dict[str, Call] = {
        "x * sigmoid(y)": lambda x, y: x * torch.sigmoid(y),
        "relu(x + y) * 2": lambda x, y: torch.relu(x + y) * 2,
        "tanh(x) - y": lambda x, y: torch.tanh(x) - y,
        "gelu(x) * y": lambda x, y: F.gelu(x) * y,
        "(x - y) ** 2": lambda x, y: (x - y) ** 2,
        "where(x > 0, x, y)": lambda x, y: torch.where(x > 0, x, y),
        "x.exp() / (1 + y.abs())": lambda x, y: x.exp() / (1 + y.abs()),
    }
    name = draw.of(*chains)
    return Layer(
        f"{name}, {rows}x{wide} and {list(other.shape)}", Function(chains[name]), (torch.randn(rows, wide), other)
    )


def moved(draw: Draw) -> Layer:
    """Copies that move dimensions, join or pad."""
    batch, channels, a, b = draw.of(1, 4), draw.size(3, 512), draw.size(4, 128), draw.size(4, 128)
    x = draw.image(batch, channels, a, b)
    functions: dict[str, Call] = {
        "permute to channels-last": lambda x: x.permute(0, 2, 3, 1).contiguous(),
        "flatten and transpose": lambda x: x.flatten(2).transpose(1, 2).contiguous(),
        "cat of two": lambda x: torch.cat([x, x * 2], 1),
        "roll": lambda x: torch.roll(x, (1, 2), (2, 3)),
        "sum over channels": lambda x: x.sum(1),
        "pad": lambda x: F.pad(x, (1, 2, 1, 2)),
        "chunk and gate": lambda x: torch.mul(*x.repeat(1, 2, 1, 1).chunk(2, 1)),
    }
    name = draw.of(*functions)
    return Layer(f"{name}, {list(x.shape)}, {layout_of(x)}", Function(functions[name]), (x,))


def recurrent(draw: Draw) -> Layer:
    """lstm and gru."""
    kind, wide, units = draw.of(nn.LSTM, nn.GRU), draw.size(8, 1024), draw.size(8, 1024)
    steps, batch = draw.size(1, 64), draw.size(1, 32)
    model = kind(wide, units, draw.of(1, 2), bidirectional=draw.of(True, False))
    return Layer(
        f"{kind.__name__}, {steps} steps of {batch}x{wide} to {units}", model, (torch.randn(steps, batch, wide),)
    )


def table(draw: Draw) -> Layer:
    """Embeddings."""
    rows, wide, bags, words = draw.size(100, 100000), draw.size(4, 1024), draw.size(1, 512), draw.size(1, 64)
    model = draw.of(nn.EmbeddingBag(rows, wide, mode="sum"), nn.Embedding(rows, wide))
    return Layer(
        f"{type(model).__name__}, {bags}x{words} of {rows}x{wide}", model, (torch.randint(rows, (bags, words)),)
    )


KINDS: tuple[Callable[[Draw], Layer], ...] = (
    *(linear, convolution, depthwise, transposed, attention, matmul, norm, norm_of_image, pool, elementwise, moved),
    *(recurrent, table),
)


def layout_of(x: Tensor) -> str:
    """For a row of the table."""
    return "contiguous" if x.is_contiguous() else "channels-last"


def in_openvino(layer: Layer) -> Call | None:
    """The layer in OpenVINO, as `ipex bench` runs it, or None where that can't convert it."""
    inputs = tuple(x.contiguous() for x in layer.inputs)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        try:
            return find("openvino").prepare(Job(lambda: layer.model, inputs, torch.get_num_threads(), Path(folder)))
        except Exception:
            return None


class Row(NamedTuple):
    """The fastest calls of a layer, in seconds."""

    name: str
    text: str
    ours: float
    frozen: float
    openvino: float | None

    @property
    def best_ratio(self) -> float:
        """The best of the others over ours."""
        return min(self.frozen, self.openvino or self.frozen) / self.ours


def measure(kind: Callable[[Draw], Layer], number: str, options: argparse.Namespace) -> Row | None:
    """One drawn layer; None where it takes too long."""
    layer = kind(Draw(f"{kind.__name__} {number}"))
    model = layer.model.eval()
    traced = torch.jit.trace(model, layer.inputs, check_trace=False)
    optimized, frozen = ipex.jit_optimize(traced), torch.jit.freeze(traced)
    clock = CLOCKS[options.clock]
    start = clock()
    frozen(*layer.inputs)
    if clock() - start > LONGEST:
        return None
    calls: list[Callable[[], object]] = [lambda: optimized(*layer.inputs), lambda: frozen(*layer.inputs)]
    other = in_openvino(layer) if options.openvino else None
    fastest = [min(times) for times in times_in_turn(options.seconds, calls + ([other] if other else []), clock)]
    return Row(f"{kind.__name__} {number}", layer.text, *fastest[:2], fastest[2] if other else None)


def show(rows: list[Row], limit: float) -> None:
    """Both tables."""
    print("| kind | cases | frozen / ipex | least | OpenVINO / ipex | least |\n|---|---:|---:|---:|---:|---:|")
    for kind in dict.fromkeys(row.name.split()[0] for row in rows):
        own = [row for row in rows if row.name.split()[0] == kind]
        columns = [[row.frozen / row.ours for row in own], [row.openvino / row.ours for row in own if row.openvino]]
        cells = [f"{statistics.geometric_mean(c):.2f} | {min(c):.2f}" if c else " | " for c in columns]
        print(f"| {kind} | {len(own)} | {' | '.join(cells)} |")
    print("\n| case | layer | ipex, us | frozen / ipex | OpenVINO / ipex |\n|---|---|---:|---:|---:|")
    for row in sorted(rows, key=lambda row: row.best_ratio):
        if row.best_ratio < limit:
            other = f"{row.openvino / row.ours:.2f}" if row.openvino else ""
            print(f"| {row.name} | {row.text} | {row.ours * 1e6:.0f} | {row.frozen / row.ours:.2f} | {other} |")


def main() -> None:
    """Draw, time, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=130, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=[kind.__name__ for kind in KINDS])
    parser.add_argument("--case", action="append", default=[], help="one of these alone, as the table names it")
    parser.add_argument("--openvino", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each case")
    parser.add_argument("--clock", choices=CLOCKS, default="process")
    parser.add_argument("--below", type=float, default=0.9, help="cases under this ratio are printed")
    options = parser.parse_args()
    kinds = {kind.__name__: kind for kind in KINDS}
    names = options.case or [
        f"{options.kinds[i % len(options.kinds)]} {options.seed}/{i // len(options.kinds)}"
        for i in range(options.cases)
    ]
    rows: list[Row] = []
    with torch.no_grad():
        for i, name in enumerate(names):
            kind, number = name.split()
            row = measure(kinds[kind], number, options)
            rows += [row] if row else []
            print(f"\r{i + 1}/{len(names)} {name:30}", end="", file=sys.stderr)
    print(file=sys.stderr)
    show(rows, options.below)


if __name__ == "__main__":
    main()
