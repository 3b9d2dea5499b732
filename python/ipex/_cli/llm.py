"""Generate text: with --prompt once, without it as a chat. A line of figures follows each answer."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    add_model(parser)
    parser.add_argument("--prompt", help="what to go on with; without, each line of the input is one of a chat")
    parser.add_argument("--tokens", type=int, default=200, help="at most so many new ones (%(default)s)")
    parser.add_argument("--sample", action="store_true", help="draw tokens by their probability")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Take a model, and what becomes of it."""
    parser.add_argument("model", help="a GGUF file, or a folder that save_pretrained or --save wrote")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument(
        "--weights", choices=("int8", "int4", "nf4", "fp8"), help="round the weights of a folder's model"
    )
    parser.add_argument(
        "--kv-cache-dtype",
        choices=("int8", "float8_e4m3fn", "float8_e5m2"),
        help="keep keys and values in 8 bits; by default in --dtype",
    )
    parser.add_argument("--threads", type=int, help="by default torch's")
    parser.add_argument("--save", metavar="FOLDER", help="write the model there, packed, to be ready at once next time")


def run(options: argparse.Namespace) -> int:
    """Generate until the input ends."""
    model, tokenizer = the_model(options)
    if options.prompt is not None:
        _answer(model, tokenizer, tokenizer(options.prompt, return_tensors="pt"), options)
        return 0
    said: list[dict[str, str]] = []
    for line in sys.stdin:
        said.append({"role": "user", "content": line.strip()})
        words = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        said.append({"role": "assistant", "content": _answer(model, tokenizer, words, options)})
    return 0


def the_model(options: argparse.Namespace) -> tuple[Any, Any]:
    """Return the optimised model, and its tokenizer."""
    try:
        import transformers
    except ImportError:
        raise ValueError("ipex llm: expected transformers, got none. Install it: pip install transformers") from None
    import torch

    if options.threads:
        torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    start = time.perf_counter()
    loaded = _load(options)
    print(f"ready in {time.perf_counter() - start:.1f} s", file=sys.stderr)
    if options.save:
        import ipex

        model, tokenizer = loaded
        ipex.aot_save(model, options.save)
        tokenizer.save_pretrained(options.save)
    return loaded


def _load(options: argparse.Namespace) -> tuple[Any, Any]:
    import torch
    import transformers

    import ipex
    from ipex import llm

    path, dtype = Path(options.model), getattr(torch, options.dtype)
    how: dict[str, Any] = {"dtype": dtype, "inplace": True}
    if options.kv_cache_dtype:
        how["kv_cache_dtype"] = getattr(torch, options.kv_cache_dtype)
    if not path.exists():
        raise ValueError(f"ipex llm: expected a GGUF file or a folder, got '{path}', which is not there.")
    if path.is_file():
        if options.weights:
            raise ValueError("ipex llm: expected no --weights with a GGUF file: it has its own.")
        beside = (path.parent / "tokenizer.json").is_file()
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                path.parent, **({} if beside else {"gguf_file": path.name})
            )
        except ImportError:
            raise ValueError(
                "ipex llm: expected a tokenizer.json beside the file, or the package gguf, which reads the file's own. "
                "Install it: pip install gguf"
            ) from None
        return llm.optimize(llm.from_gguf(path, dtype=dtype), **how), tokenizer
    if (path / "step.ipex").is_file():
        if options.weights or options.kv_cache_dtype or dtype is not torch.float32:
            raise ValueError(
                "ipex llm: expected no --weights, --dtype or --kv-cache-dtype with a folder of --save, got one. The "
                "model is what it was when it was saved."
            )
        return ipex.aot_load(path), transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
    mapping = None
    if options.weights:
        weights = ipex.quantization.WoqWeightDtype[options.weights.upper()]
        mapping = ipex.quantization.get_weight_only_quant_qconfig_mapping(weight_dtype=weights)
    optimized = llm.optimize(model, quantization_config=mapping, **how)
    return optimized, transformers.AutoTokenizer.from_pretrained(path)


def _answer(model: Any, tokenizer: Any, words: Any, options: argparse.Namespace) -> str:
    """Print the new text as it comes, and return it."""
    import torch
    from transformers import TextStreamer

    times: list[float] = []

    class Streamer(TextStreamer):  # type: ignore[misc]
        def put(self, value: Any) -> None:
            times.append(time.perf_counter())
            super().put(value)

    start, count = time.perf_counter(), words["input_ids"].shape[1]
    with torch.no_grad():
        tokens = model.generate(
            **words,
            max_new_tokens=options.tokens,
            do_sample=options.sample,
            streamer=Streamer(tokenizer, skip_prompt=True, skip_special_tokens=True),
        )[0, count:]
    new = times[1:]  # the first is the prompt's
    rate = (len(new) - 1) / (new[-1] - new[0]) if len(new) > 1 else 0.0
    print(
        f"[{count} tokens in {(new[0] - start) * 1e3:.0f} ms, then {len(new)} at {rate:.1f} a second]", file=sys.stderr
    )
    return str(tokenizer.decode(tokens, skip_special_tokens=True))
