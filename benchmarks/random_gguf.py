"""Writes a GGUF file with the sizes of a well-known language model, random weights and a made-up vocabulary.

    python -m benchmarks.random_gguf --shape llama-3.2-1b --format Q4_0 FILE

llama.cpp, OpenVINO GenAI and ipex read it: it has the sizes and the speed of the model, and says nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gguf_writer import TYPES, Content, bytes_of, write

FORMATS = ("Q4_0", "Q4_1", "Q8_0")
_FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7}  # llama.cpp's numbers
_SCALE = {"Q4_0": 0.0044, "Q4_1": 0.0044, "Q8_0": 0.00027}  # numbers of a deviation of 0.02


@dataclass(frozen=True)
class Shape:
    """What a configuration of transformers says, under llama.cpp's name of the architecture."""

    architecture: str
    layers: int
    hidden: int
    between: int  # the two linears of a block; of one expert, where there are some
    heads: int
    shared: int  # heads of keys
    numbers: int  # of a head
    vocabulary: int
    base: float  # of the rotary embedding
    epsilon: float = 1e-6
    context: int = 8192
    turned: int = 0  # numbers of a head that the rotary embedding turns; 0 for all
    trained: int = 0  # the longest text that it was trained with, where longer ones have frequencies of their own
    experts: int = 0
    used: int = 0
    of_all: int = 0  # the two linears of the expert that every token has


SHAPES = {
    "llama-3.2-1b": Shape("llama", 16, 2048, 8192, 32, 8, 64, 128256, 500000.0, 1e-5),
    "qwen3-0.6b": Shape("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 1000000.0),
    "qwen3-4b": Shape("qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 1000000.0),
    "phi-4-mini": Shape("phi3", 32, 3072, 8192, 24, 8, 128, 200064, 10000.0, 1e-5, 131072, turned=96, trained=4096),
    # As Qwen3-30B-A3B, an eighth of it: 0.9 of 1.1 milliards of weights lie in experts.
    "qwen3-moe-1b": Shape("qwen3moe", 12, 1024, 768, 16, 4, 128, 151936, 1000000.0, experts=32, used=4),
    # As Qwen1.5-MoE-A2.7B, an eighth of its layers, and as Mixtral 8x7B, a quarter of its sizes and layers.
    "qwen2-moe-2b": Shape("qwen2moe", 3, 2048, 1408, 16, 16, 128, 151936, 1000000.0, experts=60, used=4, of_all=5632),
    "mixtral-0.8b": Shape("llama", 8, 1024, 3584, 8, 2, 128, 32000, 1000000.0, 1e-5, experts=8, used=2),
}


def fields_of(shape: Shape, kind: str) -> dict[str, Any]:
    """Return the fields of a file."""
    own = {
        "block_count": shape.layers,
        "context_length": shape.context,
        "embedding_length": shape.hidden,
        "feed_forward_length": shape.between,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.shared,
        "attention.key_length": shape.numbers,
        "attention.value_length": shape.numbers,
        "attention.layer_norm_rms_epsilon": shape.epsilon,
        "rope.dimension_count": shape.turned or shape.numbers,
        "rope.freq_base": shape.base,
        "vocab_size": shape.vocabulary,
    }
    if shape.trained:
        stretched = 1 + math.log(shape.context / shape.trained) / math.log(shape.trained)
        own |= {"rope.scaling.original_context_length": shape.trained, "rope.scaling.attn_factor": math.sqrt(stretched)}
    if shape.experts:
        own |= {"expert_count": shape.experts, "expert_used_count": shape.used}
        own |= {"expert_feed_forward_length": shape.between} if shape.architecture != "llama" else {}
        own |= {"expert_shared_feed_forward_length": shape.of_all} if shape.of_all else {}
    # A byte's own token is a letter, as in GPT-2: those that have none are moved behind the others.
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = 256
    tokens = []
    for byte in range(256):
        tokens.append(chr(byte if byte in printed else moved))
        moved += byte not in printed
    tokens += ["ab", "<|end|>"]
    tokens += [f"<{number}>" for number in range(len(tokens), shape.vocabulary)]
    return {
        "general.architecture": shape.architecture,
        "general.name": "random",
        "general.file_type": _FILE_TYPES[kind],
        "general.quantization_version": 2,
        **{f"{shape.architecture}.{name}": value for name, value in own.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2" if shape.architecture.startswith("qwen") else "llama-bpe",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token == "<|end|>" else 1 for token in tokens],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 257,
        "tokenizer.ggml.eos_token_id": 257,
    }


def _blocks(kind: str, count: int, seed: int) -> bytes:
    draw, size = torch.Generator().manual_seed(seed), TYPES[kind][2]
    blocks = torch.randint(0, 256, (count, size), dtype=torch.uint8, generator=draw)
    scales = _SCALE[kind] * (0.5 + torch.rand(count, 1, generator=draw))
    halves = torch.cat([scales, -7.5 * scales], 1) if kind == "Q4_1" else scales
    blocks[:, : 2 * halves.shape[1]] = halves.half().view(torch.uint8)
    return blocks.numpy().tobytes()


def tensors_of(shape: Shape, kind: str) -> dict[str, Content]:
    """Return the tensors of a file, which are made as they are written."""
    found: dict[str, Content] = {}

    def codes(name: str, *sizes: int) -> None:
        count = bytes_of(kind, sizes) // TYPES[kind][2]
        found[f"{name}.weight"] = kind, sizes, partial(_blocks, kind, count, len(found))

    def ones(name: str, size: int) -> None:
        found[f"{name}.weight"] = "F32", (size,), torch.ones(size).numpy().tobytes()

    queries, keys = shape.heads * shape.numbers, shape.shared * shape.numbers
    codes("token_embd", shape.vocabulary, shape.hidden)  # of the head, too
    if shape.architecture == "qwen2moe":  # which llama.cpp wants apart
        codes("output", shape.vocabulary, shape.hidden)
    ones("output_norm", shape.hidden)
    if shape.trained:
        for name, most in (("short", 2.0), ("long", 40.0)):
            factors = torch.linspace(1, most, (shape.turned or shape.numbers) // 2)
            found[f"rope_factors_{name}.weight"] = "F32", tuple(factors.shape), factors.numpy().tobytes()
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        ones(f"{block}.attn_norm", shape.hidden)
        ones(f"{block}.ffn_norm", shape.hidden)
        if shape.architecture == "phi3":
            codes(f"{block}.attn_qkv", queries + 2 * keys, shape.hidden)
        else:
            codes(f"{block}.attn_q", queries, shape.hidden)
            codes(f"{block}.attn_k", keys, shape.hidden)
            codes(f"{block}.attn_v", keys, shape.hidden)
        if shape.architecture.startswith("qwen2"):
            for name, size in (("q", queries), ("k", keys), ("v", keys)):
                zeros = torch.zeros(size).numpy().tobytes()
                found[f"{block}.attn_{name}.bias"] = "F32", (size,), zeros
        if shape.architecture.startswith("qwen3"):
            ones(f"{block}.attn_q_norm", shape.numbers)
            ones(f"{block}.attn_k_norm", shape.numbers)
        codes(f"{block}.attn_output", shape.hidden, queries)
        if shape.experts:
            draw = torch.Generator().manual_seed(layer)

            def floats(name: str, *sizes: int, draw: torch.Generator = draw) -> None:
                numbers = torch.randn(sizes, generator=draw) * 0.02
                found[f"{name}.weight"] = "F32", sizes, numbers.numpy().tobytes()

            floats(f"{block}.ffn_gate_inp", shape.experts, shape.hidden)
            codes(f"{block}.ffn_gate_exps", shape.experts, shape.between, shape.hidden)
            codes(f"{block}.ffn_up_exps", shape.experts, shape.between, shape.hidden)
            codes(f"{block}.ffn_down_exps", shape.experts, shape.hidden, shape.between)
            if shape.of_all:
                floats(f"{block}.ffn_gate_inp_shexp", shape.hidden)
                codes(f"{block}.ffn_gate_shexp", shape.of_all, shape.hidden)
                codes(f"{block}.ffn_up_shexp", shape.of_all, shape.hidden)
                codes(f"{block}.ffn_down_shexp", shape.hidden, shape.of_all)
        elif shape.architecture == "phi3":
            codes(f"{block}.ffn_up", 2 * shape.between, shape.hidden)
            codes(f"{block}.ffn_down", shape.hidden, shape.between)
        else:
            codes(f"{block}.ffn_gate", shape.between, shape.hidden)
            codes(f"{block}.ffn_up", shape.between, shape.hidden)
            codes(f"{block}.ffn_down", shape.hidden, shape.between)
    return found


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--format", choices=FORMATS, default="Q4_0")
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    write(options.file, fields_of(shape, options.format), tensors_of(shape, options.format))
    print(f"{options.file}: {options.file.stat().st_size / 1e6:.0f} MB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
