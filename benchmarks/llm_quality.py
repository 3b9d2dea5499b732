"""Perplexity of a GGUF file's model on a text, with its weights kept in different ways.

    python -m benchmarks.llm_quality SmolLM2-135M-Instruct.Q4_1.gguf --path llama.cpp=FOLDER

The text is the licence of Python, or --text FILE. It is cut into windows of --window tokens that don't overlap; what is
left over is not used. In each window every token but the first is predicted from those before it. The ways:

    float32           the file's numbers in floats, by ipex.llm.optimize; bfloat16 computes in bfloat16 too
    transformers      the same in float32, as it is
    grid              the file's own integers
    int8, int4, ..    the numbers of float32, rounded again by quantization_config; "/32" are groups of 32 inputs, and
                      "symmetric" has no offsets
    cache-int8, ..    float32 with keys and values of 8 bits, by kv_cache_dtype
    llama.cpp         the file in llama-cpp-python, where it is installed; --path llama.cpp=FOLDER adds a folder of
                      `pip install --target` for it

Prints Markdown: perplexity, and how much it is above float32's.
"""

from __future__ import annotations

import argparse
import math
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

import ipex
from benchmarks.llm_worker import plain
from ipex import llm

Logits = Callable[[Tensor], Tensor]  # of a window: [tokens, words]

# Of get_weight_only_quant_qconfig_mapping.
ROUNDED = {
    "int8": ("INT8", -1, "UNDEFINED"),
    "int8/32": ("INT8", 32, "UNDEFINED"),
    "int4/32": ("INT4", 32, "UNDEFINED"),
    "int4/64": ("INT4", 64, "UNDEFINED"),
    "int4/128": ("INT4", 128, "UNDEFINED"),
    "int4/32 symmetric": ("INT4", 32, "SYMMETRIC"),
    "nf4/32": ("NF4", 32, "UNDEFINED"),
    "nf4/64": ("NF4", 64, "UNDEFINED"),
    "fp8": ("FP8", -1, "UNDEFINED"),
    "fp8/32": ("FP8", 32, "UNDEFINED"),
}
CACHES = {"cache-int8": torch.int8, "cache-e4m3": torch.float8_e4m3fn, "cache-e5m2": torch.float8_e5m2}
WAYS = ("float32", "transformers", "bfloat16", "grid", *ROUNDED, *CACHES, "llama.cpp")


def logits_of(way: str, path: str, threads: int) -> Logits:
    """What computes the logits of a window."""
    if way == "llama.cpp":
        return of_llama_cpp(path, threads)
    model = llm.from_gguf(path)
    if way == "grid":
        model = llm.optimize(model, inplace=True)
    elif way == "bfloat16":
        model = llm.optimize(plain(model), inplace=True, dtype=torch.bfloat16)
    elif way == "float32" or way in CACHES:
        model = llm.optimize(plain(model), inplace=True, kv_cache_dtype=CACHES.get(way))
    elif way == "transformers":
        model = plain(model)
    else:
        dtype, group_size, scheme = ROUNDED[way]
        mapping = ipex.quantization.get_weight_only_quant_qconfig_mapping(
            weight_dtype=ipex.quantization.WoqWeightDtype[dtype],
            group_size=group_size,
            weight_qscheme=ipex.quantization.WoqWeightQScheme[scheme],
        )
        model = llm.optimize(plain(model), inplace=True, quantization_config=mapping)
    return lambda window: model(window.unsqueeze(0)).logits[0]


def of_llama_cpp(path: str, threads: int) -> Logits:
    """Logits of llama.cpp."""
    from llama_cpp import Llama

    model = Llama(path, n_threads=threads, n_threads_batch=threads, n_ctx=2048, logits_all=True, verbose=False)

    def logits(window: Tensor) -> Tensor:
        model.reset()
        model.eval(window.tolist())
        return torch.from_numpy(model.scores[: len(window)])

    return logits


def perplexity(logits: Logits, windows: Iterator[Tensor]) -> float:
    """e to the mean of what each token costs."""
    costs = []
    with torch.no_grad():
        for window in windows:
            costs.append(torch.nn.functional.cross_entropy(logits(window)[:-1].float(), window[1:], reduction="none"))
    return math.exp(torch.cat(costs).double().mean())


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--text", type=Path, default=Path(sysconfig.get_paths()["stdlib"]) / "LICENSE.txt")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--windows", type=int, default=6, help="so many at most")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--path", action="append", default=[], metavar="BACKEND=FOLDER")
    options = parser.parse_args()
    sys.path.extend(each.split("=", 1)[1] for each in options.path)
    from transformers import AutoTokenizer

    torch.set_num_threads(options.threads)
    file = Path(options.file)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokens = torch.tensor(tokenizer(options.text.read_text())["input_ids"])
    windows = [each for each in tokens.split(options.window) if len(each) == options.window][: options.windows]
    if not windows:
        print(f"llm_quality: expected {options.window} tokens in the text, got {len(tokens)}.", file=sys.stderr)
        return 2
    print(f"{file.name}, {options.text.name}, {len(windows)} windows of {options.window} tokens\n")
    print("| weights | perplexity | above float32 |")
    print("|---|---:|---:|", flush=True)
    base = None
    for way in options.ways:
        try:
            found = perplexity(logits_of(way, options.file, options.threads), iter(windows))
        except ImportError as error:
            print(f"{way}: left out, {error}", file=sys.stderr)
            continue
        base = found if way == "float32" else base
        above = f"{found / base - 1:+.1%}" if base else ""
        print(f"| {way} | {found:.2f} | {above} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
