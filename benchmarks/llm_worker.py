"""The process of one backend: `python -m benchmarks.llm_worker`, driven by benchmarks/llm.py.

It answers orders without ipex.bench.worker, whose torch and ipex would count in the memory of a peer.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read_rate has threads of its own

# Prompts of one length and a count; yields the time when each of them has another token.
Tokens = Callable[[list[list[int]], int], Iterator[Any]]


def plain(model: Any) -> Any:
    """The model with linears and embeddings of floats."""
    from torch import nn

    from ipex.llm._codes import EmbeddingOfCodes
    from ipex.quantization import WeightOnlyLinear

    for name, module in list(model.named_modules()):
        parent, _, own = name.rpartition(".")
        if isinstance(module, WeightOnlyLinear):
            made: nn.Module = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
            made.weight.data = module.weight.clone()
            if module.bias is not None:
                made.bias.data = module.bias
        elif isinstance(module, EmbeddingOfCodes):
            made = nn.Embedding(module.num_embeddings, module.embedding_dim)
            made.weight.data = module.weight.clone()
        else:
            continue
        setattr(model.get_submodule(parent), own, made.eval())
    return model


def _of_transformers(model: Any) -> Tokens:
    import torch

    model.generation_config.eos_token_id = None  # goes on after the end of a text

    def tokens(prompts: list[list[int]], count: int) -> Iterator[Any]:
        times: list[float] = []

        def after_each(_: Any, scores: Any) -> Any:  # a streamer takes one text alone
            times.append(time.perf_counter())
            return scores

        words = torch.tensor(prompts)
        with torch.no_grad():
            model.generate(
                words,
                attention_mask=torch.ones_like(words),
                max_new_tokens=count,
                do_sample=False,
                logits_processor=[after_each],
            )
        yield from times

    return tokens


def _of_llama_cpp(path: str, threads: int, room: int, batch: int) -> Tokens:
    import ctypes

    import llama_cpp
    import numpy

    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    options = llama_cpp.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_seq_max = room * batch, room * batch, batch
    options.n_threads = options.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, options)
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    given = llama_cpp.llama_batch_init(room * batch, 0, 1)

    def step(words: list[list[int]], past: int) -> list[list[int]]:
        """The likeliest words behind these, of each text."""
        place = 0
        for number, text in enumerate(words):
            for behind, word in enumerate(text):
                given.token[place], given.pos[place] = word, past + behind
                given.n_seq_id[place], given.seq_id[place][0] = 1, number
                given.logits[place] = behind == len(text) - 1
                place += 1
        given.n_tokens = place
        if llama_cpp.llama_decode(context, given) != 0:
            raise RuntimeError("llama_decode failed")
        found = []
        for number in range(len(words)):
            logits = llama_cpp.llama_get_logits_ith(context, (number + 1) * len(words[0]) - 1)
            pointer = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))
            found.append([int(numpy.ctypeslib.as_array(pointer, (vocabulary,)).argmax())])
        return found

    def tokens(prompts: list[list[int]], count: int) -> Iterator[Any]:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        words, past = prompts, 0
        for _ in range(count):
            length = len(words[0])
            words, past = step(words, past), past + length
            yield time.perf_counter()

    return tokens


def _ready(backend: str, path: str, threads: int, room: int, batch: int) -> Tokens:
    if backend == "llama.cpp":
        return _of_llama_cpp(path, threads, room, batch)
    if backend == "openvino":
        import numpy
        import openvino_genai
        from openvino import Tensor

        pipeline = openvino_genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)

        def tokens_of_openvino(prompts: list[list[int]], count: int) -> Iterator[Any]:
            if len(prompts) > 1:
                raise ValueError("its pipeline takes one text of tokens")
            how = openvino_genai.GenerationConfig(max_new_tokens=count, ignore_eos=True, do_sample=False)
            start = time.perf_counter()
            result = pipeline.generate(Tensor(numpy.array(prompts)), how)
            metrics = result.perf_metrics
            first = metrics.get_ttft().mean / 1e3
            each = metrics.get_tpot().mean / 1e3
            yield from (start + first + each * i for i in range(count))

        return tokens_of_openvino
    import torch

    import ipex
    from ipex import llm

    torch.set_num_threads(threads)
    model = llm.from_gguf(path)
    if backend.startswith("ipex-rows"):
        mode = ipex.quantization.WoqLowpMode({"16": 2, "8": 3}[backend.removeprefix("ipex-rows")])
        mapping = ipex.quantization.get_weight_only_quant_qconfig_mapping(lowp_mode=mode)
        return _of_transformers(llm.optimize(model, inplace=True, quantization_config=mapping))
    if backend == "ipex":
        return _of_transformers(llm.optimize(model, inplace=True))
    model = plain(model)
    if backend == "transformers":
        return _of_transformers(model)
    kind = backend.partition("-")[2]
    if kind in ("int8", "int4"):
        weights = ipex.quantization.WoqWeightDtype[kind.upper()]
        mapping = ipex.quantization.get_weight_only_quant_qconfig_mapping(weight_dtype=weights)
        return _of_transformers(llm.optimize(model, inplace=True, quantization_config=mapping))
    return _of_transformers(llm.optimize(model, inplace=True, dtype=getattr(torch, kind)))


def read_rate(threads: int) -> float:
    """Return how many bytes a second threads read that add up a large array: the best of some tries."""
    import numpy

    parts = [numpy.ones(1 << 25, dtype=numpy.float32) for _ in range(threads)]
    best = 0.0
    for _ in range(5):
        readers = [threading.Thread(target=numpy.dot, args=(part, part)) for part in parts]
        start = time.perf_counter()
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        best = max(best, sum(part.nbytes for part in parts) / (time.perf_counter() - start))
    return best


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


class Worker:
    """Carries out orders; each method is one."""

    tokens: Tokens

    def prepare(self, backend: str, path: str, threads: int, room: int, batch: int) -> dict[str, Any]:
        """Make the model ready, for so many texts with room for so many tokens each. Say how fast memory is read."""
        rate, start = read_rate(threads), time.perf_counter()
        self.tokens = _ready(backend, path, threads, room, batch)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        return {"rate": rate, "seconds": time.perf_counter() - start, "peak": peak}

    def round(self, length: int, count: int, seed: int, batch: int) -> dict[str, Any]:
        """Seconds to the first token and of each next one, and the memory then."""
        draw = random.Random(seed)
        prompts = [draw.choices(range(100, 20_000), k=length) for _ in range(batch)]
        start = time.perf_counter()
        times = list(self.tokens(prompts, count))
        each = (times[-1] - times[0]) / (count - 1)
        return {"numbers": [times[0] - start, each, _resident_mb()]}


def main() -> None:
    """Answer orders until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print
    worker = Worker()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(worker, order.pop("do"))(**order)
        except Exception as error:
            answer = {"status": "failed", "note": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
