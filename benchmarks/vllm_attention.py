"""vLLM's attention for CPUs and `ipex::attend_paged`, in turn, where vLLM is installed (docs/how_to/llm.md):

    OMP_NUM_THREADS=1 python benchmarks/vllm_attention.py --heads 32 --shared 4 --numbers 64

A call writes the keys and values of the new tokens and attends, in each of some layers in turn, as a step does. Prints
Markdown: microseconds of a layer by vLLM, and the median of the rounds' ratios of vLLM's time to ours.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from torch import Tensor
from vllm import _custom_ops as vllm_ops
from vllm.platforms import current_platform
from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

import ipex  # noqa: F401
from in_turn import CLOCKS, median_ratio, times_in_turn

CASES = {  # texts, tokens of each that are new, those before them
    "decode, 1 text of 1,000": (1, 1, 999),
    "decode, 8 texts of 1,000": (8, 1, 999),
    "decode, 1 text of 8,000": (1, 1, 7999),
    "prefill of 1,000": (1, 1000, 0),
    "256 more behind 744": (1, 256, 744),
}
BLOCK = 128
SECONDS_PER_CASE = 3.0


class Layers:
    """Caches of both kinds, with what a step gives to all of them."""

    def __init__(self, case: tuple[int, int, int], options: argparse.Namespace, dtype: torch.dtype):
        heads, numbers, layers = options.heads, options.numbers, options.layers
        of_keys = heads // options.shared
        texts, new, past = case
        length = new + past
        per_text = -(-length // BLOCK)
        self.scale = numbers**-0.5
        self.blocks = torch.randperm(texts * per_text).to(torch.int32).view(texts, per_text)
        token = torch.arange(length)
        places = self.blocks[:, token // BLOCK].long() * BLOCK + token % BLOCK
        self.slots = places[:, past:].flatten().contiguous()
        self.begins = torch.arange(texts + 1, dtype=torch.int32) * new
        self.lengths = torch.full((texts,), length, dtype=torch.int32)
        self.query = torch.randn(texts * new, heads, numbers).to(dtype)
        self.key, self.value = (torch.randn(texts * new, of_keys, numbers).to(dtype) for _ in range(2))
        sizes = texts * per_text, of_keys, BLOCK, 2 * numbers
        self.ours = [torch.randn(sizes).to(dtype) for _ in range(layers)]
        self.theirs = [torch.randn(sizes).to(dtype) for _ in range(layers)]
        self.isa = _get_attn_isa(dtype, BLOCK, numbers)
        for theirs, ours in zip(self.theirs, self.ours):  # the same tokens, as each lays them out
            flat = ours.view(*sizes[:2], 2 * BLOCK, numbers).chunk(2, 2)
            key, value = (x.transpose(1, 2)[places // BLOCK, places % BLOCK].flatten(0, 1).contiguous() for x in flat)
            self.write(theirs, key, value, places.flatten().contiguous())
        self.plan = vllm_ops.cpu_attn_get_scheduler_metadata(
            num_reqs=texts,
            num_heads=heads,
            num_kv_heads=of_keys,
            head_dim=numbers,
            seq_lens=self.lengths,
            dtype=dtype,
            query_start_loc=self.begins,
            causal=True,
            sliding_window_size=-1,
            isa=self.isa,
            enable_kv_split=True,
        )
        self.result = torch.empty_like(self.query)

    def parts(self, cache: Tensor) -> tuple[Tensor, ...]:
        """Return keys and values of vLLM's cache."""
        return cache.view(*cache.shape[:2], 2 * BLOCK, -1).chunk(2, 2)

    def write(self, cache: Tensor, key: Tensor, value: Tensor, slots: Tensor) -> None:
        """Write as vLLM lays them out."""
        vllm_ops.cpu_attn_reshape_and_cache(key, value, *self.parts(cache), slots, self.isa)

    def step_of_vllm(self) -> Tensor:
        """Return the result of the last layer."""
        for cache in self.theirs:
            self.write(cache, self.key, self.value, self.slots)
            keys, values = self.parts(cache)
            vllm_ops.cpu_attention_with_kv_cache(
                query=self.query,
                key_cache=keys,
                value_cache=values,
                output=self.result,
                query_start_loc=self.begins,
                seq_lens=self.lengths,
                scale=self.scale,
                causal=True,
                alibi_slopes=None,
                sliding_window=-1,
                block_table=self.blocks,
                softcap=0,
                scheduler_metadata=self.plan,
                s_aux=None,
            )
        return self.result

    def step_of_ours(self) -> Tensor:
        """Return the same."""
        for cache in self.ours:
            result = torch.ops.ipex.attend_paged(
                cache,
                self.query,
                self.key,
                self.value,
                self.slots,
                self.blocks,
                self.begins,
                self.lengths,
                self.scale,
                0,
            )
        return result


def main() -> None:
    """Print a row for each case and dtype."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", type=int, default=32, help="of queries (%(default)s)")
    parser.add_argument("--shared", type=int, default=4, help="how many of them share keys (%(default)s)")
    parser.add_argument("--numbers", type=int, default=64, help="of a head (%(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="%(default)s")
    parser.add_argument("--clock", choices=CLOCKS, default="core", help="%(default)s, for one thread")
    options = parser.parse_args()
    current_platform.import_kernels()
    dtypes = torch.bfloat16, torch.float32, torch.float16
    names = [str(dtype).removeprefix("torch.") for dtype in dtypes]
    print(f"| | {' | '.join(f'{name}, us | ratio' for name in names)} |")
    print("|---|" + "---:|" * (2 * len(names)))
    for name, case in CASES.items():
        cells: list[str] = []
        for dtype in dtypes:
            torch.manual_seed(0)
            layers = Layers(case, options, dtype)
            torch.testing.assert_close(layers.step_of_ours(), layers.step_of_vllm(), rtol=0, atol=2e-2)
            theirs, ours = times_in_turn(
                SECONDS_PER_CASE, [layers.step_of_vllm, layers.step_of_ours], CLOCKS[options.clock]
            )
            cells += [f"{statistics.median(theirs) / options.layers * 1e6:.0f}", f"{median_ratio(theirs, ours):.2f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
