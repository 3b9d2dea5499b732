"""What transformers' own switches save with a GGUF file's model: a prefix read once, and guesses of several tokens.

    python -m benchmarks.llm_less_work SmolLM2-135M-Instruct.Q4_1.gguf --threads 1 --prefix 512 --tokens 64

    prefix          the first token after --prefix tokens and --question more: the whole text, or a copy of the cache
    lookup          --tokens tokens of a text that says its beginning again: one by one, or prompt_lookup_num_tokens=3
    lookup-float32  the same with the file's numbers in floats
    draft           --tokens tokens in float32: one by one, or with the file's own 4 bits as assistant_model

The text is the licence of Python. Both sides of a row take turns in one process; where their tokens differ, that is
said. Prints Markdown: seconds (without the first token, but for prefix), medians of the rounds, and the median of the
rounds' ratios.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from benchmarks.llm_worker import plain
from ipex import llm

Way = Callable[[int], Tensor]  # of how many tokens


def _generating(model: Any, text: Tensor, **how: Any) -> Way:
    fixed = {"attention_mask": torch.ones_like(text), "do_sample": False, "pad_token_id": 0}
    return lambda tokens: model.generate(
        text, max_new_tokens=tokens, min_new_tokens=tokens, **fixed, **{name: make() for name, make in how.items()}
    )


def _prefix(model: Any, draft: Any, text: Tensor, options: argparse.Namespace) -> tuple[Way, Way]:
    whole = text[:, : options.prefix + options.question]
    kept = model(text[:, : options.prefix], past_key_values=transformers.DynamicCache()).past_key_values
    return _generating(model, whole), _generating(model, whole, past_key_values=lambda: copy.deepcopy(kept))


def _lookup(model: Any, draft: Any, text: Tensor, options: argparse.Namespace) -> tuple[Way, Way]:
    again = torch.cat([text[:, : options.prefix], text[:, :32]], 1)
    return _generating(model, again), _generating(model, again, prompt_lookup_num_tokens=lambda: 3)


def _draft(model: Any, draft: Any, text: Tensor, options: argparse.Namespace) -> tuple[Way, Way]:
    draft.generation_config.num_assistant_tokens = 5
    return _generating(model, text[:, :64]), _generating(model, text[:, :64], assistant_model=lambda: draft)


def _seconds(way: Way, tokens: int) -> float:
    times = []
    for count in (tokens, 1)[: 1 if tokens == 1 else 2]:
        start = time.perf_counter()
        way(count)
        times.append(time.perf_counter() - start)
    return times[0] - sum(times[1:])


WAYS = {"prefix": _prefix, "lookup": _lookup, "lookup-float32": _lookup, "draft": _draft}


@torch.no_grad()
def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prefix", type=int, default=512)
    parser.add_argument("--question", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    folder, name = Path(options.path).parent, Path(options.path).name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    licence = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    text = tokenizer(licence.read_text(), return_tensors="pt").input_ids
    print("| | as usual | saving | of the time |\n|---|---:|---:|---:|")
    in_4_bits = llm.optimize(llm.from_gguf(options.path), inplace=True)
    in_floats = llm.optimize(plain(llm.from_gguf(options.path)), inplace=True)
    for name in options.ways:
        model = in_4_bits if name in ("prefix", "lookup") else in_floats
        usual, saving = WAYS[name](model, in_4_bits, text, options)
        tokens = 1 if name == "prefix" else options.tokens
        if not torch.equal(usual(tokens), saving(tokens)):  # and both are warm
            print(f"llm_less_work: expected the same tokens of both, got others for {name}.", file=sys.stderr)
        times = [(_seconds(usual, tokens), _seconds(saving, tokens)) for _ in range(options.rounds)]
        medians = [statistics.median(side) for side in zip(*times)]
        ratio = statistics.median(after / before for before, after in times)
        print(f"| {name} | {medians[0]:.2f} s | {medians[1]:.2f} s | {ratio:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
