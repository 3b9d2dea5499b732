"""Times what is done to images beside convolutions, in ipex and in aten, called in turn: pools of images and volumes,
the average of channels-last images, and the conversion to channels-last. Prints Markdown:

OMP_NUM_THREADS=1 python benchmarks/pooling.py
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

import ipex  # noqa: F401  (its ops)
from in_turn import median_ratio, times_in_turn

MAX_POOLS = [  # shape, window, stride, padding
    ((1, 64, 112, 112), 3, 2, 1),
    ((1, 192, 56, 56), 3, 2, 0),
    ((1, 256, 28, 28), 3, 1, 1),
    ((1, 64, 224, 224), 2, 2, 0),
    ((1, 20, 30, 30), 3, 2, 1),
    ((1, 64, 20, 20), 5, 1, 2),
    ((1, 64, 56, 56), 3, 3, 0),
    ((1, 8, 224, 224), 16, 16, 0),
]
MEAN_POOLS = [  # shape, window, stride, padding
    ((1, 64, 56, 56), 3, 1, 1),
    ((1, 320, 14, 14), 3, 1, 1),
    ((1, 256, 56, 56), 2, 2, 0),
    ((1, 128, 56, 56), 3, 2, 1),
    ((1, 64, 28, 28), 5, 2, 2),
    ((1, 64, 56, 56), 3, 3, 0),
    ((1, 32, 112, 112), 7, 7, 0),
    ((1, 8, 224, 224), 16, 16, 0),
]
VOLUME_POOLS = [  # shape, window, stride, padding
    ((1, 96, 8, 56, 56), (1, 3, 3), (1, 2, 2), (0, 1, 1)),
    ((1, 64, 16, 28, 28), (2, 2, 2), (2, 2, 2), (0, 0, 0)),
    ((1, 16, 24, 24, 24), (3, 3, 3), (3, 3, 3), (0, 0, 0)),
]
AVERAGES = [(1, 1280, 7, 7), (1, 2048, 7, 7), (1, 96, 112, 112)]
IMAGES = [(1, 3, 224, 224), (8, 3, 224, 224)]
SECONDS_PER_CASE = 1.0


def image(shape: tuple[int, ...]) -> Tensor:
    """Channels-last."""
    return torch.randn(shape).to(memory_format=torch.channels_last)


def show(what: str, shape: tuple[int, ...], aten: Callable[[], object], ours: Callable[[], object]) -> None:
    """Time both, and print a row."""
    found = times_in_turn(SECONDS_PER_CASE, [aten, ours])
    columns = [f"{1e3 * statistics.median(own):.3f}" for own in found] + [f"{median_ratio(*found):.2f}"]
    print(f"| {what} | {'x'.join(map(str, shape))} | {' | '.join(columns)} |", flush=True)


def main() -> None:
    """A row per case."""
    print("| | image | aten, ms | ipex, ms | aten / ipex |")
    print("|---|---|---:|---:|---:|")
    aten, ours = torch.ops.aten, torch.ops.ipex
    for shape, window, stride, padding in MAX_POOLS:
        pool = (image(shape), [window] * 2, [stride] * 2, [padding] * 2, [1, 1], False)
        show(f"maximum, {window} by {stride}", shape, partial(aten.max_pool2d, *pool), partial(ours.max_pool2d, *pool))
        pool = (pool[0].contiguous(), *pool[1:])
        show("the same, contiguous", shape, partial(aten.max_pool2d, *pool), partial(ours.max_pool2d, *pool))
    for shape, window, stride, padding in MEAN_POOLS:
        for x, layout in ((image(shape), "channels-last"), (torch.randn(shape), "contiguous")):
            means = (x, [window] * 2, [stride] * 2, [padding] * 2, False, False, None)
            what = f"mean, {window} by {stride}, {layout}"
            show(what, shape, partial(aten.avg_pool2d, *means), partial(ours.avg_pool2d, *means))
    for shape, sizes, strides, borders in VOLUME_POOLS:
        volume = (torch.randn(shape), sizes, strides, borders)
        deep = (*volume, [1, 1, 1], False)
        show(f"maximum, {sizes} by {strides}", shape, partial(aten.max_pool3d, *deep), partial(ours.max_pool3d, *deep))
        means = (*volume, False, True, None)
        show(f"mean, {sizes} by {strides}", shape, partial(aten.avg_pool3d, *means), partial(ours.avg_pool3d, *means))
    for shape in AVERAGES:
        whole = (image(shape), [1, 1])
        show("average", shape, partial(aten.adaptive_avg_pool2d, *whole), partial(ours.adaptive_avg_pool2d, *whole))
    for shape in IMAGES:
        x = torch.randn(shape)
        convert = partial(x.contiguous, memory_format=torch.channels_last)
        show("to channels-last", shape, convert, partial(ours.to_channels_last, x, 2))


if __name__ == "__main__":
    with torch.inference_mode():
        main()
