"""Times update steps on a GPU: triton's kernels of ipex against torch's ops over lists and torch's fused step.

python benchmarks/optimizer_step_gpu.py --millions 10,100
python benchmarks/optimizer_step_gpu.py --sweep 1024x4,2048x4,2048x8,4096x8

The forms, called in turn: `triton`; `lists`, what ipex does without triton; stock's `fused` and `foreach`, in float32,
for 16-bit weights too, as stock under autocast keeps float32 weights. A time is that of the fastest tenth of calls,
launches and waiting for the GPU included. GB/s counts each byte that a step must read or write, once. --sweep times
triton alone with other sizes of a block and numbers of warps.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from unittest import mock

import torch

from in_turn import times_in_turn
from ipex.optim import by_triton, prepare
from optimizer_step import OPTIMIZERS, OURS, SMALL_TENSORS, Weights, bytes_moved, fastest, set_gradients, with_gradients

Call = Callable[[], object]
DTYPES = {
    "float32": (torch.float32, False),
    "split": (torch.bfloat16, True),
    "bfloat16": (torch.bfloat16, False),
    "float16": (torch.float16, False),
}


def waiting(step: Call) -> Call:
    """Return a call that waits for the GPU."""

    def call() -> None:
        step()
        torch.cuda.synchronize()

    return call


def on_gpu(elements: int, tensors: int) -> Weights:
    """Return weights that were made there."""
    with torch.device("cuda"):
        return with_gradients(elements, tensors)


def own_step(name: str, form: str, elements: int, tensors: int, by_lists: bool) -> Call | None:
    """Return a step of ipex, by triton or by torch's ops; None where ipex would leave it to stock."""
    dtype, split = DTYPES[form]
    if by_lists and form == "float32":
        return None
    weights = on_gpu(elements, tensors)
    optimizer = OPTIMIZERS[name][0](weights.parameters())
    kernels = (lambda _: False) if by_lists else by_triton.has_kernels
    own = mock.patch.object(prepare, "fuse_by_torch", return_value=False)
    with own, mock.patch.object(by_triton, "has_kernels", kernels):
        assert prepare.prepare(weights, optimizer, dtype, split, True) == []
        set_gradients(weights)
        optimizer.step()  # chooses
    return optimizer.step


def stock_steps(name: str, elements: int, tensors: int) -> dict[str, Call]:
    """Return stock's steps, in float32."""
    found = {}
    for form in ("torch ops",) if name in OURS else ("fused", "foreach"):
        weights = on_gpu(elements, tensors)
        try:
            optimizer = OPTIMIZERS[name][0](weights.parameters(), **({} if name in OURS else {form: True}))
            set_gradients(weights)
            optimizer.step()
        except RuntimeError:  # torch fuses Adagrad on CPUs alone
            continue
        found[form] = optimizer.step
    return found


def rate(name: str, form: str, elements: int, seconds: float) -> float:
    """Return GB/s. A float32 master beside a 16-bit weight is 2 bytes more than float32, its gradient 2 less."""
    return 1e-9 * bytes_moved(name, form == "split") * elements / seconds


def copy_rate() -> float:
    """Return the GB/s, read and written, of copying a large tensor."""
    source = torch.ones(250_000_000, device="cuda")
    target = torch.zeros_like(source)
    (found,) = times_in_turn(1.0, [waiting(lambda: target.copy_(source))])
    return 2e-9 * source.nbytes / fastest(found)


def row(name: str, form: str, elements: int, tensors: int, seconds: float) -> str:
    """Time one cell."""
    calls = {"triton": own_step(name, form, elements, tensors, False)}
    calls["lists"] = own_step(name, form, elements, tensors, True)
    calls |= stock_steps(name, elements, tensors)
    there = {key: waiting(call) for key, call in calls.items() if call is not None}
    own, *others = map(fastest, times_in_turn(seconds, list(there.values())))
    told = ", ".join(f"{key} {1e3 * time:.3f}" for key, time in zip(list(there)[1:], others))
    what = f"{name}, {form} | {elements // 10**6} M in {tensors}"
    speed = rate(name, form, elements, own)
    return f"| {what} | {1e3 * own:.3f} | {told} | {min(others) / own:.2f} | {speed:.0f} |"


def sweep(sizes: str, seconds: float) -> None:
    """Time triton's step with other sizes."""
    cells = [(name, tensors) for name in ("SGD", "AdamW", "Lamb") for tensors in (1, SMALL_TENSORS)]
    print(f"| block x warps | {' | '.join(f'{name} split, 100 M in {tensors}' for name, tensors in cells)} |")
    print(f"|---|{'---:|' * len(cells)}")
    for size in sizes.split(","):
        block, warps = map(int, size.split("x"))
        found = []
        with mock.patch.object(by_triton, "BLOCK", block), mock.patch.object(by_triton, "WARPS", warps):
            for name, tensors in cells:
                step = own_step(name, "split", 10**8, tensors, False)
                assert step is not None
                time = fastest(times_in_turn(seconds, [waiting(step)])[0])
                found.append(f"{1e3 * time:.3f} ms, {rate(name, 'split', 10**8, time):.0f} GB/s")
        print(f"| {size} | {' | '.join(found)} |", flush=True)


def main() -> None:
    """A table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", default="10,100")
    parser.add_argument("--tensors", default=f"1,{SMALL_TENSORS}")
    parser.add_argument("--optimizers", default=",".join(OPTIMIZERS))
    parser.add_argument("--formats", default=",".join(DTYPES))
    parser.add_argument("--seconds", type=float, default=0.5, help="per cell")
    parser.add_argument("--sweep", help="blocks and warps to time instead, as 1024x4,2048x8")
    options = parser.parse_args()
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; a copy moves {copy_rate():.0f} GB/s\n")
    if options.sweep:
        sweep(options.sweep, options.seconds)
        return
    print("| optimizer | parameters | triton, ms | others, ms | best other / triton | triton, GB/s |")
    print("|---|---|---:|---|---:|---:|", flush=True)
    for name in options.optimizers.split(","):
        for millions in map(int, options.millions.split(",")):
            for tensors in map(int, options.tensors.split(",")):
                for form in options.formats.split(","):
                    print(row(name, form, millions * 10**6, tensors, options.seconds), flush=True)
                    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
