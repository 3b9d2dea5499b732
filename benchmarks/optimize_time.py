"""What jit_optimize takes, per step and per node, as a graph grows: python benchmarks/optimize_time.py.

The times per step and node are those of the CPU, which other work on the machine disturbs less.

Each kind of graph is a model whose forward repeats a step: `stack` adds what a linear gives; `residual` is conv, bn,
add and relu as in a ResNet; `transformer` is attention and an MLP, with norms; `chain` is elementwise; `diamonds`
reads through two branches that meet again; `dense` concatenates like a DenseNet; `repeated` calls the same 300 blocks
in turn; `blocks` is scripted, with an `if` and a loop in each step; `nested` has each `if` in the one before;
`writes` changes a buffer and its values in place.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings

import torch
from torch import Tensor, nn

import ipex


class Stack(nn.Module):
    """Layers that add to what they read."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(8, 8) for _ in range(steps))

    def forward(self, x: Tensor) -> Tensor:
        """Go through all layers."""
        for linear in self.linears:
            x = self.step(linear, x)
        return x

    def step(self, linear: nn.Module, x: Tensor) -> Tensor:
        """What one layer does."""
        return x + torch.relu(linear(x))


class Residual(nn.Module):
    """Blocks of a ResNet."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(steps))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(steps))

    def forward(self, x: Tensor) -> Tensor:
        """Go through all blocks."""
        x = x[:, :, None, None].expand(-1, -1, 6, 6)
        for convolution, norm in zip(self.convolutions, self.norms):
            x = torch.relu(x + norm(convolution(x)))
        return x


class Attention(nn.Module):
    """A block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out, self.mlp = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8), Block()

    def forward(self, x: Tensor) -> Tensor:
        """Attend to all rows, and go through the MLP."""
        rows = x.size(0)
        q, k, v = self.qkv(self.norm(x)).view(1, rows, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.transpose(-2, -1) * 0.5).softmax(-1)
        return self.mlp(x + self.out((weights @ v).transpose(1, 2).reshape(rows, 8)))


class Chain(nn.Module):
    """Elementwise ops."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        """Go through all of them."""
        y = x
        for _ in range(self.steps):
            y = torch.tanh(y) * x + 0.5
        return y


class Diamonds(Stack):
    """Each layer reads its input through two branches."""

    def step(self, linear: nn.Module, x: Tensor) -> Tensor:
        """What one layer does."""
        x = super().step(linear, x)
        return torch.cat([x.to(torch.bfloat16).to(torch.float32), x], dim=-1)[..., :8]


class Writes(Stack):
    """A buffer and activations are changed in place."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.register_buffer("calls", torch.zeros(8))

    def step(self, linear: nn.Module, x: Tensor) -> Tensor:
        """What one layer does."""
        self.calls += 1
        return linear(x).relu_().add_(self.calls)


class Dense(nn.Module):
    """Convolutions that read a concatenation of the last eight results."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(4 * min(i + 1, 8)) for i in range(steps))
        self.convolutions = nn.ModuleList(nn.Conv2d(4 * min(i + 1, 8), 4, 1) for i in range(steps))

    def forward(self, x: Tensor) -> Tensor:
        """Go through all layers."""
        parts = [x.flatten(1)[:, :4, None, None]]
        for norm, convolution in zip(self.norms, self.convolutions):
            parts.append(convolution(torch.relu(norm(torch.cat(parts[-8:], dim=1)))))
        return parts[-1]


class Block(nn.Module):
    """A block of a mixer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Go through the block."""
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Repeated(nn.Module):
    """300 blocks, called in turn."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.blocks = steps, nn.ModuleList(Block() for _ in range(min(steps, 300)))

    def forward(self, x: Tensor) -> Tensor:
        """Call them until there were enough steps."""
        for i in range(self.steps):
            x = self.blocks[i % len(self.blocks)](x)
        return x


class Branch(nn.Module):
    """An `if` and a loop that stay in the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Go through one of the two, and then through the second a few times."""
        x = torch.relu(self.linear(x)) if x.size(0) > 1 else self.other(x)
        for _ in range(x.size(0)):
            x = x + torch.relu(self.other(x))
        return x


def scripted_blocks(steps: int) -> torch.jit.ScriptModule:
    """Give a scripted model with a branch per step."""
    return torch.jit.script(nn.Sequential(*(Branch() for _ in range(steps))).eval())


def nested(steps: int) -> torch.jit.ScriptModule:
    """Give a scripted model, each `if` in the one before."""
    lines = ["def forward(self, x: Tensor) -> Tensor:"]
    for step in range(steps):
        lines.append(f"{'  ' * (step + 1)}if x.size(0) > {step}:")
        lines.append(f"{'  ' * (step + 2)}x = torch.relu(x) + {step}")
    module = type(f"Nested{steps}", (torch.jit.ScriptModule,), {})()  # a class by this name has one forward
    module.define("\n".join([*lines, "  return x", ""]))
    return module.eval()


def traced(model: nn.Module) -> torch.jit.ScriptModule:
    """Trace it."""
    with torch.no_grad():
        return torch.jit.trace(model.eval(), torch.randn(2, 8), check_trace=False)


# A model of so many steps, and the steps to try.
KINDS = {
    "stack": (lambda steps: traced(Stack(steps)), [200, 1000, 2500, 4000]),
    "residual": (lambda steps: traced(Residual(steps)), [60, 250, 1000]),
    "transformer": (lambda steps: traced(nn.Sequential(*(Attention() for _ in range(steps)))), [25, 50, 200]),
    "chain": (lambda steps: traced(Chain(steps)), [500, 2000, 8000]),
    "diamonds": (lambda steps: traced(Diamonds(steps)), [80, 400, 1000, 1600]),
    "writes": (lambda steps: traced(Writes(steps)), [140, 700, 1800, 2800]),
    "dense": (lambda steps: traced(Dense(steps)), [100, 500, 1250, 2000]),
    "repeated": (lambda steps: traced(Repeated(steps)), [100, 500, 1250, 2000]),
    "blocks": (scripted_blocks, [40, 200, 500, 800]),
    "nested": (nested, [10, 20, 40]),
}


def node_count(block: torch._C.Block) -> int:
    """Count nodes, those of inner blocks included."""
    return sum(1 + sum(node_count(inner) for inner in node.blocks()) for node in block.nodes())


def main() -> None:
    """Print a line per kind and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--steps", type=int, nargs="+", help="instead of those of each kind")
    parser.add_argument("--rounds", type=int, default=1, help="the median of so many")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'kind':>11} {'steps':>6} {'nodes':>6} {'seconds':>8} {'CPU seconds':>12} {'ms/step':>8} {'ms/node':>8}")
    for kind in arguments.kinds:
        make, sizes = KINDS[kind]
        for steps in arguments.steps or sizes:
            model = make(steps)
            nodes = node_count(model.inlined_graph)
            wall, cpu = [], []
            for _ in range(arguments.rounds):
                start, used = time.perf_counter(), time.process_time()
                ipex.jit_optimize(model)
                wall.append(time.perf_counter() - start)
                cpu.append(time.process_time() - used)
            seconds, used = statistics.median(wall), statistics.median(cpu)
            per_step, per_node = used / steps * 1e3, used / nodes * 1e3
            figures = f"{seconds:8.2f} {used:12.2f} {per_step:8.3f} {per_node:8.3f}"
            print(f"{kind:>11} {steps:6} {nodes:6} {figures}", flush=True)


if __name__ == "__main__":
    main()
