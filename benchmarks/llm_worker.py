"""The process of one backend: `python -m benchmarks.llm_worker`, driven by benchmarks/llm.py.

It answers orders without ipex.bench.worker, whose torch and ipex would count in the memory of a peer.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Tokens = Callable[[list[int], int], Iterator[Any]]  # a prompt and a count; yields as each token is there


def plain(model: Any) -> Any:
    """The model with linears and embeddings of floats."""
    import torch
    from torch import nn

    from ipex.llm._codes import EmbeddingOfCodes
    from ipex.quantization import WeightOnlyLinear

    for name, module in list(model.named_modules()):
        parent, _, own = name.rpartition(".")
        if isinstance(module, WeightOnlyLinear):
            made: nn.Module = nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
            made.weight.data = module(torch.eye(module.in_features)).T.contiguous()
            if module.bias is not None:
                made.weight.data -= module.bias.unsqueeze(1)
                made.bias.data = module.bias
        elif isinstance(module, EmbeddingOfCodes):
            made = nn.Embedding(*module.codes.shape)
            made.weight.data = module(torch.arange(len(module.codes)))
        else:
            continue
        setattr(model.get_submodule(parent), own, made.eval())
    return model


def _of_transformers(model: Any) -> Tokens:
    import torch

    model.generation_config.eos_token_id = None  # goes on after the end of a text

    def tokens(prompt: list[int], count: int) -> Iterator[Any]:
        times: list[float] = []

        class Streamer:
            def put(self, _: Any) -> None:
                times.append(time.perf_counter())

            def end(self) -> None:
                pass

        words = torch.tensor([prompt])
        with torch.no_grad():
            model.generate(
                words,
                attention_mask=torch.ones_like(words),
                max_new_tokens=count,
                do_sample=False,
                streamer=Streamer(),
            )
        yield from times[1:]  # the first is the prompt's

    return tokens


def _ready(backend: str, path: str, threads: int) -> Tokens:
    if backend == "llama.cpp":
        from llama_cpp import Llama

        model = Llama(path, n_threads=threads, n_threads_batch=threads, n_ctx=2048, verbose=False)

        def tokens(prompt: list[int], count: int) -> Iterator[Any]:
            for i, _ in enumerate(model.generate(prompt, temp=0.0, reset=True)):
                yield time.perf_counter()
                if i + 1 == count:
                    return

        return tokens
    if backend == "openvino":
        import numpy
        import openvino_genai
        from openvino import Tensor

        pipeline = openvino_genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)

        def tokens_of_openvino(prompt: list[int], count: int) -> Iterator[Any]:
            times: list[float] = []

            def put(_: Any) -> Any:
                times.append(time.perf_counter())
                return openvino_genai.StreamingStatus.RUNNING

            how = openvino_genai.GenerationConfig(max_new_tokens=count, ignore_eos=True, do_sample=False)
            start = time.perf_counter()
            result = pipeline.generate(Tensor(numpy.array([prompt])), how)
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


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


class Worker:
    """Carries out orders; each method is one."""

    tokens: Tokens

    def prepare(self, backend: str, path: str, threads: int) -> dict[str, Any]:
        """Make the model ready."""
        self.tokens = _ready(backend, path, threads)
        return {}

    def round(self, length: int, count: int, seed: int) -> dict[str, Any]:
        """Seconds to the first token and of each next one, and the memory then."""
        prompt = random.Random(seed).choices(range(100, 20_000), k=length)
        start = time.perf_counter()
        times = list(self.tokens(prompt, count))
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
