"""Times forward and backward of layers in training, with weights packed for the kernels and not, and prints Markdown:

python benchmarks/prepacked_training.py --threads 1,2 --batches 8,32
python benchmarks/prepacked_training.py --step                          # whole steps of ResNet-50, fused SGD in all

The layers are those of ResNet-50 and, with 128 words, BERT base. A step computes result and gradients: torch's as
it is; with forward and the gradient of the input on packed weights, packed in each step, as the optimizer writes plain
ones; the same with packing left out, which nothing could beat; and by what `ipex.optimize` makes of the layer. Each
convolution has channels-last and contiguous images. Calls are made in turn; a time is that of the fastest tenth, on a
busy machine, with one thread, best of the core's own time: --clock core.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import ipex
from in_turn import CLOCKS, Clock, times_in_turn
from ipex.bench.models.convolutional import resnet50

Calls = list[Callable[[], object]]
OPS = torch.ops.ipex
# Channels, pixels along a side, results, window, stride.
CONVOLUTIONS = [
    (64, 56, 64, 1, 1),
    (64, 56, 64, 3, 1),
    (64, 56, 256, 1, 1),
    (512, 28, 128, 1, 1),
    (128, 28, 128, 3, 1),
    (256, 28, 256, 3, 2),
    (256, 14, 256, 3, 1),
    (256, 14, 1024, 1, 1),
    (512, 7, 512, 3, 1),
    (512, 7, 2048, 1, 1),
]
LINEARS = [(768, 768), (768, 3072), (3072, 768)]
WORDS = 128


def by_optimize(layer: nn.Module, x: Tensor, gradient: Tensor) -> Calls:
    """Return a step of the layer, and of what `ipex.optimize` makes of it."""
    parameters = [copy.deepcopy(layer).train() for _ in range(2)]
    optimizer = torch.optim.SGD(parameters[1].parameters(), lr=0.1)
    own, _ = ipex.optimize(parameters[1], optimizer=optimizer, inplace=True)
    x = x.detach().requires_grad_()

    def step(module: nn.Module) -> None:
        x.grad = None
        module.zero_grad()
        module(x).backward(gradient)

    return [lambda: step(parameters[0]), lambda: step(own)]


def convolution(case: tuple[int, ...], batch: int, dtype: torch.dtype, layout: torch.memory_format) -> Calls:
    """Return a step by torch, on packed weights, on weights that were packed before, and `by_optimize`."""
    channels, side, results, window, stride = case
    pad, out = window // 2, (side + 2 * (window // 2) - window) // stride + 1
    layer = nn.Conv2d(channels, results, window, stride, pad, bias=False).to(dtype=dtype, memory_format=layout)
    weight = layer.weight.detach()
    x = torch.randn(batch, channels, side, side).to(dtype).contiguous(memory_format=layout)
    gradient = torch.randn(batch, results, out, out).to(dtype).contiguous(memory_format=layout)

    def pack() -> tuple[Any, Any]:
        none = ([], None, None, None)
        forward = OPS.convolution_prepack(
            weight, None, [stride] * 2, [pad] * 2, [1, 1], 1, False, [0, 0], *none
        )  # fmt: skip
        if stride == 1:
            turned = weight.flip(2, 3).transpose(0, 1)
            backward = OPS.convolution_prepack(
                turned, None, [1, 1], [window - 1 - pad] * 2, [1, 1], 1, False, [0, 0], *none
            )  # fmt: skip
        else:
            rest = side - ((out - 1) * stride - 2 * pad + window)
            backward = OPS.convolution_prepack(
                weight, None, [stride] * 2, [pad] * 2, [1, 1], 1, True, [rest] * 2, *none
            )  # fmt: skip
        return forward, backward

    def gradients(of_image: bool) -> None:
        others = (None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, [of_image, True, False])
        torch.ops.aten.convolution_backward(gradient, x, weight, *others)

    def plain() -> None:
        torch.conv2d(x, weight, None, stride, pad)
        gradients(of_image=True)

    def packed(contexts: tuple[Any, Any]) -> None:
        OPS.convolution_run(x, contexts[0], [], True)
        OPS.convolution_run(gradient, contexts[1], [], True)
        gradients(of_image=False)

    kept = pack()
    return [plain, lambda: packed(pack()), lambda: packed(kept), *by_optimize(layer, x, gradient)]


def linear(case: tuple[int, int], batch: int, dtype: torch.dtype) -> Calls:
    """Return the same of a linear."""
    features, results = case
    layer = nn.Linear(features, results).to(dtype)
    weight, bias = layer.weight.detach(), layer.bias.detach()
    x, gradient = (torch.randn(batch * WORDS, n).to(dtype) for n in (features, results))

    def pack() -> tuple[Any, Any]:
        none = ([], None, None, None)
        return OPS.linear_prepack(weight, bias, *none), OPS.linear_prepack(weight.t(), None, *none)

    def plain() -> None:
        nn.functional.linear(x, weight, bias)
        gradient @ weight
        gradient.t() @ x
        gradient.sum(0)

    def packed(contexts: tuple[Any, Any]) -> None:
        OPS.linear_run(x, contexts[0], [], True)
        OPS.linear_run(gradient, contexts[1], [], True)
        gradient.t() @ x
        gradient.sum(0)

    kept = pack()
    return [plain, lambda: packed(pack()), lambda: packed(kept), *by_optimize(layer, x, gradient)]


def fastest(seconds: list[float]) -> float:
    """Return the time that a tenth of the calls did not take."""
    return statistics.quantiles(seconds, n=10, method="inclusive")[0]


def row(what: str, dtype: torch.dtype, calls: Calls, seconds: float, clock: Clock) -> str:
    """Time one layer."""
    # Apart: the second two go through autograd, and packed weights leave little of the caches to the next call.
    stock, *others = map(fastest, times_in_turn(seconds, calls[:3], clock))
    before, after = map(fastest, times_in_turn(seconds, calls[3:], clock))
    ratios = " | ".join(f"{ratio:.2f}" for ratio in (*(stock / other for other in others), before / after))
    return f"| {what} | {str(dtype).removeprefix('torch.')} | {1e3 * stock:.2f} | {ratios} |"


def layers(batch: int, seconds: float, clock: Clock) -> None:
    """Print a table."""
    print("| layer | dtype | torch, ms | torch / packed | torch / packed once | torch / ipex.optimize |")
    print("|---|---|---:|---:|---:|---:|", flush=True)
    for dtype in (torch.float32, torch.bfloat16):
        for case in CONVOLUTIONS:
            for layout in (torch.channels_last, torch.contiguous_format):
                channels, side, results, window, stride = case
                what = f"{channels}x{side}x{side} to {results}, {window}x{window}, stride {stride}, "
                what += "channels-last" if layout == torch.channels_last else "contiguous"
                print(row(what, dtype, convolution(case, batch, dtype, layout), seconds, clock), flush=True)
        for linear_case in LINEARS:
            what = f"linear {batch * WORDS}x{linear_case[0]} to {linear_case[1]}"
            print(row(what, dtype, linear(linear_case, batch, dtype), seconds, clock), flush=True)


def steps(batch: int, seconds: float, clock: Clock) -> None:
    """Print whole steps of ResNet-50."""
    print("| layout | without, ms | with weights_prepack, ms | ratio |")
    print("|---|---:|---:|---:|", flush=True)
    for layout in (torch.channels_last, torch.contiguous_format):
        model = resnet50().train().to(memory_format=layout)
        x = torch.randn(batch, 3, 224, 224).contiguous(memory_format=layout)
        targets = torch.randint(1000, (batch,))

        def step(own: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor = x, targets: Tensor = targets) -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(own(x), targets).backward()
            optimizer.step()

        calls: Calls = []
        for prepack in (False, True):
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
            own = ipex.optimize(model, optimizer=optimizer, weights_prepack=prepack)
            calls.append(lambda own=own: step(*own))
        without, packed = map(fastest, times_in_turn(seconds, calls, clock))
        name = str(layout).removeprefix("torch.")
        print(f"| {name} | {1e3 * without:.0f} | {1e3 * packed:.0f} | {without / packed:.3f} |", flush=True)


def main() -> None:
    """A table per number of threads and batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batches", default="8,32")
    parser.add_argument("--seconds", type=float, default=1.0, help="per layer; of a step ten times as many")
    parser.add_argument("--step", action="store_true", help="whole steps of ResNet-50 instead")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    clock = CLOCKS[options.clock]
    torch.manual_seed(0)
    for threads in map(int, options.threads.split(",")):
        torch.set_num_threads(threads)
        for batch in map(int, options.batches.split(",")):
            print(f"\n{threads} threads, batch {batch}\n")
            if options.step:
                steps(batch, 10 * options.seconds, clock)
            else:
                layers(batch, options.seconds, clock)


if __name__ == "__main__":
    main()
