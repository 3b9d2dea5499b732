"""Times models after `ipex.optimize`, called eagerly without tracing, against eager and torch.compile, in turn.

    python benchmarks/eager_calls.py [--threads 1] [--rounds 15] [--compile]

First the cost of a call beside its arithmetic: linears so small that nearly all of a call is overhead. Then MLPs, BERT
base with 128 words and ResNet-50. Every optimised result is compared with eager.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import ipex
from ipex._tolerance import tolerance_for
from ipex.bench.models import MODELS


def mlp(width: int = 256, depth: int = 3) -> nn.Module:
    """Linears with relu between them."""
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).eval()


class Tied(nn.Module):
    """An embedding and a head with one weight, of SmolLM2-135M's size."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(49152, 576), nn.Linear(576, 49152, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        """Return the logits of words."""
        return self.head(self.words(words))


def seconds(call: Callable[[], object], least: float) -> float:
    """The mean time of a call over a stretch of at least so many seconds."""
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < least or not count:
        call()
        count += 1
    return (time.perf_counter() - begin) / count


def in_turn(calls: dict[str, Callable[[], object]], rounds: int, least: float) -> dict[str, list[float]]:
    """Times of each call, one of each in every round."""
    for call in calls.values():
        call()
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(seconds(call, least))
    return times


def line(name: str, times: dict[str, list[float]]) -> str:
    """A row of the table: medians in us, and the medians of the paired ratios to ours."""
    ours = times["ipex"]
    cells = [f"{statistics.median(t) * 1e6:.1f}" for t in times.values()]
    ratios = [f"{statistics.median(a / b for a, b in zip(t, ours)):.2f}" for peer, t in times.items() if peer != "ipex"]
    return f"| {name} | " + " | ".join(cells + ratios) + " |"


def first(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The first result of a model."""
    return result if isinstance(result, Tensor) else result[0]


def check(actual: Tensor, expected: Tensor) -> None:
    """Stop where the optimised model computes something else."""
    error = (actual - expected).abs().max().item() / expected.abs().max().item()
    assert error < tolerance_for(expected.dtype), f"the results differ by {error:.1e} of the largest element"


@torch.no_grad()
def compare(
    name: str, model: nn.Module, inputs: tuple[Tensor, ...], arguments: argparse.Namespace, least: float = 0.05
) -> None:
    """Print the row of one model."""
    optimized = ipex.optimize(model, sample_input=inputs)
    check(first(optimized(*inputs)), first(model(*inputs)))
    calls = {"eager": lambda: model(*inputs), "ipex": lambda: optimized(*inputs)}
    if arguments.compile:
        compiled = torch.compile(model)
        calls["torch.compile"] = lambda: compiled(*inputs)
    print(line(name, in_turn(calls, arguments.rounds, least)), flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    peers = ["eager", "torch.compile"] if arguments.compile else ["eager"]
    print(
        f"| us, {arguments.threads} threads | eager | ipex | " + ("torch.compile | " if arguments.compile else ""),
        end="",
    )
    print(" | ".join(f"{peer} / ipex" for peer in peers) + " |")
    print("|---" * (3 + len(peers) + arguments.compile) + "|")
    for width in (8, 64, 256):
        layer = nn.Linear(width, width).eval()
        compare(f"nn.Linear {width}x{width}, 1 row", layer, (torch.randn(1, width),), arguments, 0.01)
    tied, word = Tied().eval(), torch.tensor([[3]])
    compare("embedding and head, one weight, 1 word", tied, (word,), arguments)
    compare("the same in bfloat16", tied.bfloat16(), (word,), arguments)
    compare("MLP of 3 x 256, 1 row", mlp(), (torch.randn(1, 256),), arguments, 0.01)
    compare("MLP of 3 x 1024, 32 rows", mlp(1024), (torch.randn(32, 1024),), arguments)
    for name in ("bert_base", "resnet50"):
        model, inputs = MODELS[name].make(1)
        compare(f"{MODELS[name].title}, batch 1", model, inputs, arguments)


if __name__ == "__main__":
    main()
