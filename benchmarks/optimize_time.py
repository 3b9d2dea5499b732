"""How long jit_optimize takes for graphs of 800 to 16,500 nodes, and per node: python benchmarks/optimize_time.py.

The model is a stack of x + relu(linear(x)), all of which is packed or fused. With `--diamonds` each layer reads its
input through two branches that meet again.
"""

from __future__ import annotations

import argparse
import time
import warnings

import torch
from torch import Tensor, nn

import ipex


class Stack(nn.Module):
    """Layers that add to what they read."""

    def __init__(self, layers: int, diamonds: bool) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))
        self.diamonds = diamonds

    def forward(self, x: Tensor) -> Tensor:
        """Go through all layers."""
        for linear in self.linears:
            x = x + torch.relu(linear(x))
            if self.diamonds:
                x = torch.cat([x.to(torch.bfloat16).to(torch.float32), x], dim=-1)[..., :8]
        return x


def node_count(module: torch.jit.ScriptModule) -> int:
    """Count what freezing hands to the passes."""
    return sum(1 for _ in torch.jit.freeze(module).graph.nodes())


def main() -> None:
    """Print a line per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[165, 500, 1000, 2000, 3300])
    parser.add_argument("--diamonds", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'nodes':>7} {'freeze, s':>10} {'jit_optimize, s':>16} {'ms a node':>10}")
    for layers in arguments.layers:
        with torch.no_grad():
            traced = torch.jit.trace(Stack(layers, arguments.diamonds).eval(), torch.randn(2, 8), check_trace=False)
        start = time.perf_counter()
        nodes = node_count(traced)
        frozen = time.perf_counter() - start
        start = time.perf_counter()
        ipex.jit_optimize(traced)
        seconds = time.perf_counter() - start
        print(f"{nodes:7} {frozen:10.2f} {seconds:16.2f} {seconds / nodes * 1e3:10.3f}", flush=True)


if __name__ == "__main__":
    main()
