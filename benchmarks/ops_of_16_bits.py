"""Times norms, softmax and attention of 16 bits in ipex and in aten, and whole models with and without ours, in turn:

OMP_NUM_THREADS=1 python benchmarks/ops_of_16_bits.py --dtype bfloat16

Prints Markdown: the fastest of many calls with one thread (of models, in processor time), and the largest error of each
against float64.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from attention import CASES as ATTENTION
from in_turn import CLOCKS, times_in_turn
from low_precision import Bert, ViT

OPS = torch.ops.ipex
EPS = 1e-5
ROWS = ((1, 768), (128, 768), (197, 1024), (512, 4096))
SCORES = ((1536, 128), (2364, 197), (100, 1000))
PASSES = (
    "ipex::layer_norm",
    "fuse_add_norm",
    "fuse_rms_norm",
    "ipex::softmax",
    "ipex::scaled_dot_product_attention",
    "fuse_attention",
    "fuse_cached_attention",
)
SECONDS_PER_CASE = 1.0
Function = Callable[..., Tensor]


def fastest(seconds: float, *calls: Callable[[], object], clock: str = "wall") -> list[float]:
    """Seconds."""
    return [min(own) for own in times_in_turn(seconds, calls, CLOCKS[clock])]


def show(name: str, aten: Function, ours: Function, tensors: list[Tensor]) -> None:
    """Print a row."""
    exact = aten(*(t.double() for t in tensors))
    errors = [f"{float((f(*tensors) - exact).abs().max()):.1e}" for f in (aten, ours)]
    times = fastest(SECONDS_PER_CASE, lambda: aten(*tensors), lambda: ours(*tensors))
    micros = " | ".join(f"{1e6 * t:.0f}" for t in times)
    print(f"| {name} | {micros} | {times[0] / times[1]:.2f} | {' | '.join(errors)} |", flush=True)


def show_norms(dtype: torch.dtype) -> None:
    """Each norm, of rows of some widths."""
    for rows, width in ROWS:
        a, b = torch.randn(rows, width).to(dtype), torch.randn(rows, width).to(dtype)
        scale, shift = torch.randn(width).to(dtype), torch.randn(width).to(dtype)
        where = f"{rows}x{width}"
        show(
            f"layer_norm, {where}",
            lambda x, w, v: F.layer_norm(x, x.shape[-1:], w, v, EPS),
            lambda x, w, v: OPS.layer_norm(x, x.shape[-1:], w, v, EPS),
            [a, scale, shift],
        )
        show(
            f"sum and layer_norm, {where}",
            lambda x, y, w, v: F.layer_norm(x + y, x.shape[-1:], w, v, EPS),
            lambda x, y, w, v: OPS.layer_norm.of_sum(x, y, x.shape[-1:], w, v, EPS, True)[0],
            [a, b, scale, shift],
        )
        show(
            f"rms_norm, {where}",
            lambda x, w: F.rms_norm(x, x.shape[-1:], w, EPS),
            lambda x, w: OPS.rms_norm(x, w, EPS, None, x.shape[-1:]),
            [a, scale],
        )
    for rows, width in SCORES:
        x = torch.randn(rows, width).to(dtype)
        show(f"softmax, {rows}x{width}", lambda x: x.softmax(-1), lambda x: OPS.softmax(x, -1, None), [x])


def show_attention(dtype: torch.dtype) -> None:
    """As attention.py has it."""
    for name, (batch, heads, queries, keys, width, causal, masked) in ATTENTION.items():
        tensors = [torch.randn(batch, n, heads, width).transpose(1, 2).to(dtype) for n in (queries, keys, keys)]
        tensors += [torch.randn(batch, 1, queries, keys).to(dtype)] if masked else []

        def aten(*given: Tensor, causal: bool = causal) -> Tensor:
            return F.scaled_dot_product_attention(*given, is_causal=causal)

        def ours(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = causal) -> Tensor:
            return OPS.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, None, False)  # type: ignore[no-any-return]

        show(f"attention, {name}", aten, ours, tensors)


class First(nn.Module):
    """The first result of a model of transformers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Call it."""
        return self.model(x)[0]  # type: ignore[no-any-return]


def models() -> dict[str, tuple[nn.Module, Tensor]]:
    """With random weights."""
    words = torch.randint(0, 30000, (1, 128))
    found: dict[str, tuple[nn.Module, Tensor]] = {
        "BERT base, 128 words": (Bert(), words),
        "ViT base": (ViT(), torch.randn(1, 3, 224, 224)),
    }
    try:
        from transformers import GPT2Config, GPT2Model, LlamaConfig, LlamaModel
    except ImportError:
        return found
    llama = LlamaConfig(
        hidden_size=768, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=12, num_key_value_heads=4
    )
    for name, config, kind in (("GPT-2", GPT2Config(), GPT2Model), ("Llama, 6 layers", llama, LlamaModel)):
        config.use_cache = config.return_dict = False
        found[f"{name}, 128 words"] = First(kind(config)), words
    return found


def show_models(dtype: torch.dtype, seconds: float) -> None:
    """Print the table of models."""
    print(
        "\n| | eager, ms | with norms and attention in aten | ipex | eager / ipex | aten's / ipex |\n"
        "|---|---|---|---|---|---|"
    )
    for name, (model, x) in models().items():
        low, given = model.eval().to(dtype), x.to(dtype) if x.is_floating_point() else x
        traced = torch.jit.trace(low, given, check_trace=False)
        ways = [low, ipex.jit_optimize(traced, disable=PASSES), ipex.jit_optimize(traced)]
        times = fastest(seconds, *(partial(way, given) for way in ways), clock="core")
        columns = [f"{1e3 * t:.1f}" for t in times] + [f"{t / times[2]:.2f}" for t in times[:2]]
        print(f"| {name} | {' | '.join(columns)} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--seconds", type=float, default=10, help="for each model")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"| {options.dtype} | aten, us | ipex, us | ratio | error of aten | of ipex |\n|---|---|---|---|---|---|")
    show_norms(dtype)
    show_attention(dtype)
    show_models(dtype, options.seconds)


if __name__ == "__main__":
    with torch.no_grad():
        main()
