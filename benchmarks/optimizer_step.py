"""Times update steps in ipex and in stock torch, called in turn, and prints Markdown:

python benchmarks/optimizer_step.py --threads 1,2 --millions 10,100

Stock is the best of `fused=True`, `foreach=True` and, with --compiled, a compiled step, in float32: for bfloat16 too,
as stock under autocast keeps float32 weights. A time is that of the fastest tenth of calls, and the ratio that of such
times: other work on the machine meets some calls and not others. GB/s counts each byte that a step must read or write,
once; the copy rate counts those that a copy of a large tensor reads and writes. Bytes are those of weight and state
per parameter, without the gradient.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from in_turn import CLOCKS, Clock, times_in_turn
from ipex.optim import Lamb, Lars
from ipex.optim.prepare import prepare

SMALL_TENSORS = 4096
SECONDS_PER_CASE = 2.0

Make = Callable[..., torch.optim.Optimizer]
# What an optimizer is made of, and how many float32 numbers of state it has per parameter.
OPTIMIZERS: dict[str, tuple[Make, int]] = {
    "SGD": (lambda p, **form: torch.optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=1e-2, **form), 1),
    "Adagrad": (lambda p, **form: torch.optim.Adagrad(p, lr=1e-3, **form), 1),
    "Adam": (lambda p, **form: torch.optim.Adam(p, lr=1e-3, **form), 2),
    "AdamW": (lambda p, **form: torch.optim.AdamW(p, lr=1e-3, **form), 2),
    "Lamb": (lambda p: Lamb(p, lr=1e-3, weight_decay=1e-2), 2),
    "Lars": (lambda p: Lars(p, lr=1e-3, momentum=0.9, weight_decay=1e-2), 1),
}
OURS = ("Lamb", "Lars")  # stock is then our own step in torch's ops


class Weights(nn.Module):
    """Embeddings, as one large table or many small ones: what is lowered for bfloat16."""

    def __init__(self, elements: int, tensors: int) -> None:
        super().__init__()
        each = elements // tensors
        # Neither so many rows nor so few that it matters; contiguous in any case.
        self.tables = nn.ModuleList(nn.Embedding(1, each, _weight=torch.randn(1, each) * 0.1) for _ in range(tensors))


def with_gradients(elements: int, tensors: int) -> Weights:
    """Return weights; gradients come once they have their dtype."""
    torch.manual_seed(0)
    return Weights(elements, tensors)


def set_gradients(weights: Weights) -> None:
    """Give each weight a gradient."""
    for parameter in weights.parameters():
        parameter.grad = torch.randn_like(parameter) * 1e-2


def bytes_held(optimizer: torch.optim.Optimizer) -> float:
    """Return bytes of weight and state per parameter."""
    held, elements = 0, 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            master = getattr(parameter, "_ipex_master", None)
            tensors = [
                parameter,
                *(v for v in optimizer.state[parameter].values() if isinstance(v, Tensor) and v.dim()),
            ]
            held += sum(t.numel() * t.element_size() for t in [*tensors, *([] if master is None else [master])])
            elements += parameter.numel()
    return held / elements


def bytes_moved(optimizer: str, split: bool) -> int:
    """Return the bytes that a step must read and write per parameter: gradient in, weight and state in and out."""
    _, numbers = OPTIMIZERS[optimizer]
    return (2 if split else 4) + 2 * 4 * (1 + numbers)


def fastest(seconds: list[float]) -> float:
    """Return the time that a tenth of the calls did not take."""
    return statistics.quantiles(seconds, n=10, method="inclusive")[0]


def copy_rate(threads: int) -> float:
    """Return the GB/s, read and written, of copying a large tensor: by torch or by memmove, whichever is faster."""
    source = torch.ones(100_000_000)
    target = torch.zeros_like(source)
    share = source.nbytes // threads

    def move(thread: int) -> None:
        ctypes.memmove(target.data_ptr() + thread * share, source.data_ptr() + thread * share, share)

    with ThreadPoolExecutor(threads) as pool:
        found = times_in_turn(1.0, [lambda: target.copy_(source), lambda: list(pool.map(move, range(threads)))])
    return 2e-9 * source.nbytes / min(map(fastest, found))


def stock_forms(name: str, compiled: bool) -> dict[str, dict[str, Any]]:
    """Return the forms that stock has this optimizer in."""
    if name in OURS:
        return {"torch ops": {}}
    forms: dict[str, dict[str, Any]] = {"fused": {"fused": True}, "foreach": {"foreach": True}}
    return {**forms, "compiled": {"foreach": True}} if compiled else forms


def measure(
    name: str, elements: int, tensors: int, split: bool, compiled: bool, seconds: float, clock: Clock
) -> tuple[float, str]:
    """Time one cell; return the ratio to the best of stock, and a row."""
    make, _ = OPTIMIZERS[name]
    steps: dict[str, Callable[[], object]] = {}
    for form, options in stock_forms(name, compiled).items():
        weights = with_gradients(elements, tensors)
        optimizer = make(weights.parameters(), **options)
        set_gradients(weights)
        steps[form] = torch.compile(optimizer.step) if form == "compiled" else optimizer.step
    weights = with_gradients(elements, tensors)
    ours = make(weights.parameters())
    dtype = torch.bfloat16 if split else torch.float32
    assert prepare(weights, ours, dtype, True, True) == []
    set_gradients(weights)

    found = times_in_turn(seconds, [*steps.values(), ours.step], clock)
    *stock, own = map(fastest, found)
    ratio = min(stock) / own
    told = ", ".join(f"{1e3 * time:.2f} ({form})" for time, form in sorted(zip(stock, steps)))
    rate = 1e-9 * bytes_moved(name, split) * elements / own
    columns = [
        f"{name}, {'bfloat16 split' if split else 'float32'}",
        f"{elements // 10**6} M in {tensors}",
        f"{1e3 * own:.2f}",
        told,
        f"{ratio:.2f}",
        f"{rate:.1f}",
        f"{bytes_held(ours):.0f}",
    ]
    return ratio, f"| {' | '.join(columns)} |"


def main() -> None:
    """A table per number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--millions", default="10,100")
    parser.add_argument("--tensors", default=f"1,{SMALL_TENSORS}")
    parser.add_argument("--optimizers", default=",".join(OPTIMIZERS))
    parser.add_argument("--formats", default="float32,split")
    parser.add_argument("--compiled", action="store_true", help="stock in a compiled step, too")
    parser.add_argument("--seconds", type=float, default=SECONDS_PER_CASE, help="per cell")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="core: on a busy machine, with one thread")
    options = parser.parse_args()
    clock = CLOCKS[options.clock]
    for threads in map(int, options.threads.split(",")):
        torch.set_num_threads(threads)
        print(f"\n{threads} threads; a copy moves {copy_rate(threads):.1f} GB/s\n")
        print("| optimizer | parameters | ipex, ms | stock, ms | stock / ipex | ipex, GB/s | bytes held |")
        print("|---|---|---:|---:|---:|---:|---:|", flush=True)
        ratios = []
        for name in options.optimizers.split(","):
            for millions in map(int, options.millions.split(",")):
                for tensors in map(int, options.tensors.split(",")):
                    for form in options.formats.split(","):
                        case = (name, millions * 10**6, tensors, form == "split")
                        ratio, row = measure(*case, options.compiled, options.seconds, clock)
                        print(row, flush=True)
                        ratios.append(ratio)
        print(f"\nGeometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.2f}, least {min(ratios):.2f}.")


if __name__ == "__main__":
    main()
