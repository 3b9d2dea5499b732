"""Times images that are made larger, and copies in another order of dimensions, in ipex and in aten, called in turn.
Prints Markdown:

OMP_NUM_THREADS=1 python benchmarks/upsample.py
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

import ipex
from in_turn import CLOCKS, median_ratio, times_in_turn

IMAGES = [  # shape, size of the result
    ((1, 21, 65, 65), (520, 520)),  # FCN and DeepLab
    ((1, 150, 128, 128), (512, 512)),  # SegFormer
    ((1, 256, 32, 32), (64, 64)),  # a pyramid's level
    ((1, 64, 64, 64), (128, 128)),  # a U-Net
    ((1, 768, 14, 14), (16, 16)),  # a table of positions
]
COPIES = [(1, 192, 56, 56), (1, 21, 256, 256), (1, 512, 14, 14), (1, 2048, 7, 7), (8, 64, 56, 56)]
SECONDS_PER_CASE = 1.0


def show(what: str, shape: tuple[int, ...], aten: Callable[[], object], ours: Callable[[], object]) -> None:
    """Time both, and print a row."""
    found = times_in_turn(SECONDS_PER_CASE, [aten, ours], CLOCKS["core"])
    columns = [f"{1e3 * min(own):.3f}" for own in found] + [f"{median_ratio(*found):.2f}"]
    print(f"| {what} | {'x'.join(map(str, shape))} | {' | '.join(columns)} |", flush=True)


def restored(y: Tensor, is_channels_last: bool) -> Tensor:
    """Return eager's layout where the images before were contiguous."""
    return y if is_channels_last else y.contiguous()


def main() -> None:
    """A row per case."""
    # As in a model: the memory of results is kept while there is a packed op.
    layer = torch.jit.trace(torch.nn.Linear(8, 8).eval(), torch.randn(1, 8))
    kept = ipex.jit_optimize(layer)
    print("| | image | aten, ms | ipex, ms | aten / ipex |")
    print("|---|---|---:|---:|---:|")
    aten, ours = torch.ops.aten, torch.ops.ipex
    for shape, size in IMAGES:
        x = torch.randn(shape).to(memory_format=torch.channels_last)
        for is_channels_last, layout in ((True, "channels-last"), (False, "then contiguous")):
            nearest = partial(ours.upsample_nearest2d, x, size, None, is_channels_last)
            plain = lambda: restored(aten.upsample_nearest2d.vec(x, size, None), is_channels_last)  # noqa: E731, B023
            show(f"nearest to {size[0]}, {layout}", shape, plain, nearest)
            bilinear = partial(ours.upsample_bilinear2d, x, size, False, None, is_channels_last)
            plain = lambda: restored(aten.upsample_bilinear2d.vec(x, size, False, None), is_channels_last)  # noqa: E731, B023
            show(f"bilinear to {size[0]}, {layout}", shape, plain, bilinear)
        bicubic = partial(ours.upsample_bicubic2d, x, size, False, None)
        show(f"bicubic to {size[0]}", shape, partial(aten.upsample_bicubic2d.vec, x, size, False, None), bicubic)
    for shape in COPIES:
        x = torch.randn(shape)
        y = x.to(memory_format=torch.channels_last)
        to_last = partial(x.contiguous, memory_format=torch.channels_last)
        show("to channels-last", shape, to_last, partial(ours.to_channels_last, x, 2))
        show("from channels-last", shape, y.contiguous, partial(ours.restore_layout, y, False))
    del kept


if __name__ == "__main__":
    with torch.inference_mode():
        main()
