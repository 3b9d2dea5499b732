"""What it takes to cut an image into windows behind a layer_norm, and to add windows to a residual before one.

    OMP_NUM_THREADS=1 python -m benchmarks.moved_rows

Processor time of the fastest of many calls, us, with a linear of one column behind each norm. "still" is the same
without windows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import ipex

from .in_turn import CLOCKS, times_in_turn

SHAPES = ((56, 96, 7), (28, 192, 7), (14, 384, 7), (7, 768, 7), (64, 768, 16))


class Beside(nn.Module):
    """Windows of an image with this side, number of channels and side of a window; or the image as it is."""

    def __init__(self, side: int, channels: int, window: int, moves: bool) -> None:
        super().__init__()
        self.side, self.channels, self.window, self.moves = side, channels, window, moves
        self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, 1)

    def cut(self, x: Tensor) -> Tensor:
        """Give the windows of an image."""
        count, order = self.side // self.window, (0, 1, 3, 2, 4, 5)
        x = x.view(1, count, self.window, count, self.window, self.channels)
        return (x.permute(order) if self.moves else x).reshape(-1, self.window**2, self.channels)

    def together(self, x: Tensor) -> Tensor:
        """Give the image of windows."""
        count, order = self.side // self.window, (0, 1, 3, 2, 4, 5)
        x = x.view(1, count, count, self.window, self.window, self.channels)
        return (x.permute(order) if self.moves else x).reshape(1, self.side, self.side, self.channels)


class Cut(Beside):
    """A norm before windows."""

    def forward(self, x: Tensor) -> Tensor:
        """Run the model."""
        result: Tensor = self.head(self.cut(self.norm(x)))
        return result


class Together(Beside):
    """A residual and a norm after windows."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Run the model."""
        x = x + self.together(y)
        return self.head(self.norm(x)), self.head(x)


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    print("| side, channels, window | cut: copied | moved | still | together: copied | moved | still |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for side, channels, window in SHAPES:
        x = torch.randn(1, side, side, channels)
        calls: list[Callable[[], object]] = []
        for model, inputs in ((Cut, (x,)), (Together, (x, x.view(-1, window**2, channels)))):
            for moves, disable in ((True, ["move_rows"]), (True, []), (False, [])):
                module = torch.jit.trace(model(side, channels, window, moves).eval(), inputs)
                optimized = ipex.jit_optimize(module, disable=disable)
                calls.append(lambda optimized=optimized, inputs=inputs: optimized(*inputs))
        times = " | ".join(f"{1e6 * min(own):.0f}" for own in times_in_turn(2, calls, CLOCKS["core"]))
        print(f"| {side}, {channels}, {window} | {times} |", flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
