"""Time of each token of random language models of transformers: as they are, in ipex.optimize and in ipex.llm.optimize.

    python benchmarks/llm_families.py GPTJ Bloom --threads 1 --prompt 16 --tokens 64

A family is the name of its class before ForCausalLM; the sizes are --hidden, --layers, --heads and --vocabulary. The
three take turns, in one process. Prints Markdown: milliseconds of each token after the first, medians of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from typing import Any

import torch
import transformers

import ipex


def _made(family: str, options: argparse.Namespace) -> Any:
    sizes = {
        "vocab_size": options.vocabulary,
        "hidden_size": options.hidden,
        "intermediate_size": 4 * options.hidden,
        "ffn_dim": 4 * options.hidden,  # as OPT and XGLM call it
        "d_model": options.hidden,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "max_position_embeddings": 2048,
        "rotary_dim": options.hidden // options.heads // 2,
        "eos_token_id": None,
    }
    if family == "GPTNeo":
        sizes["attention_types"] = [[["global", "local"], options.layers // 2]]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**sizes)
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


def _seconds_of_a_token(model: Any, prompt: torch.Tensor, count: int) -> float:
    how = {"attention_mask": torch.ones_like(prompt), "do_sample": False, "pad_token_id": 0}
    times = []
    for tokens in (1, count):
        start = time.perf_counter()
        model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, **how)
        times.append(time.perf_counter() - start)
    return (times[1] - times[0]) / (count - 1)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=8000)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    prompt = torch.randint(2, options.vocabulary, (1, options.prompt), generator=torch.Generator().manual_seed(0))
    print(f"{options.prompt} tokens and {options.tokens} more, {options.threads} threads, ms of each\n")
    print("| family | eager | ipex.optimize | ipex.llm.optimize | its attention |")
    print("|---|---:|---:|---:|---|")
    for family in options.families:
        model = _made(family, options)
        ours = ipex.llm.optimize(model)
        contenders = (model, ipex.optimize(model), ours)
        (decision,) = [d for d in ipex.explain(ours).decisions if d.pass_name == "capture of the step"]
        found: list[list[float]] = [[] for _ in contenders]
        with torch.no_grad():
            for _ in range(options.rounds):
                for contender, times in zip(contenders, found):
                    times.append(_seconds_of_a_token(contender, prompt, options.tokens))
        numbers = " | ".join(f"{statistics.median(times) * 1e3:.2f}" for times in found)
        print(f"| {family} | {numbers} | {decision.reason.rpartition('; ')[2]} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
