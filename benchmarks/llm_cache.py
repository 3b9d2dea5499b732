"""Attention of new words to a cache of floats, and to one of 8 bits (`kv_cache_dtype`), in turn:

    OMP_NUM_THREADS=1 python benchmarks/llm_cache.py --heads 32 --shared 4 --numbers 128 --layers 8

A call goes through the caches of all layers, as a step does. Prints Markdown: bytes of a word in a layer, microseconds
of a layer with a cache of floats, and the medians of the rounds' ratios to it.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from torch import Tensor

import ipex  # noqa: F401
from in_turn import CLOCKS, times_in_turn
from ipex.llm._cache import LARGEST_CODES, RoomyLayer

WORDS = (1024, 4096)
SECONDS_PER_CASE = 6.0


def filled(options: argparse.Namespace, words: int, dtype: torch.dtype, codes: torch.dtype | None) -> list[RoomyLayer]:
    """Layers of so many random words."""
    layers = []
    for seed in range(options.layers):
        draw = torch.Generator().manual_seed(seed)
        sizes = (1, options.heads // options.shared, words, options.numbers)
        layer = RoomyLayer(codes=codes)
        layer.update(*(torch.randn(sizes, generator=draw).to(dtype) for _ in range(2)))
        layers.append(layer)
    return layers


def step(layers: list[RoomyLayer], x: tuple[Tensor, Tensor, Tensor]) -> None:
    """Write words behind the others, and attend."""
    past, nothing = torch.tensor(layers[0].length), torch.empty(0, dtype=torch.bool)
    mask = torch.ops.ipex.cache_mask(x[0][:, 0], past, nothing, 0)
    for layer in layers:
        torch.ops.ipex.attend_cached(layer.room(x[0].shape[2]), *x, past, mask, None, 0)


def main() -> None:
    """Print a row for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--heads", type=int, default=32, help="of queries (%(default)s)")
    parser.add_argument("--shared", type=int, default=4, help="how many of them share keys (%(default)s)")
    parser.add_argument("--numbers", type=int, default=128, help="of a head (%(default)s)")
    parser.add_argument("--layers", type=int, default=8, help="%(default)s")
    parser.add_argument("--new", type=int, default=1, help="words at once (%(default)s)")
    parser.add_argument("--clock", choices=CLOCKS, default="core", help="%(default)s, for one thread")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    formats = (None, *LARGEST_CODES)
    names = [options.dtype, *(str(each).removeprefix("torch.") for each in LARGEST_CODES)]
    print(f"| words | bytes of a word | {options.dtype}, us | {' | '.join(names[1:])} |")
    print("|" + "---:|" * (len(names) + 2))
    of_keys = options.heads // options.shared
    query = torch.randn(1, options.heads, options.new, options.numbers).to(dtype)
    word = (query, *(torch.randn(1, of_keys, options.new, options.numbers).to(dtype) for _ in range(2)))
    for words in WORDS:
        all_layers = [filled(options, words, dtype, codes) for codes in formats]
        with torch.no_grad():
            times = times_in_turn(
                SECONDS_PER_CASE,
                [lambda layers=layers: step(layers, word) for layers in all_layers],
                CLOCKS[options.clock],
            )
        of_a_word = [of_keys * (2 * options.numbers * dtype.itemsize), of_keys * (2 * options.numbers + 8)]
        floats = statistics.median(times[0]) / options.layers * 1e6
        ratios = [statistics.median(a / b for a, b in zip(each, times[0])) for each in times[1:]]
        cells = [words, f"{of_a_word[0]}, {of_a_word[1]}", f"{floats:.0f}", *(f"{ratio:.2f}" for ratio in ratios)]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
