"""Time to the first token and of each next one, of a GGUF file in ipex and its peers, in turn.

    python benchmarks/llm.py SmolLM2-135M-Instruct.Q4_1.gguf --threads 1 --prompts 128 1024 --tokens 64
    python benchmarks/llm.py MODEL.gguf --path llama.cpp=FOLDER --path openvino=FOLDER

Each backend has a process of its own, in which the model is ready, and computes in its turn alone. The backends:

    ipex              ipex.llm.optimize(ipex.llm.from_gguf(FILE)): the file's own integers
    ipex-float32      the same numbers in float32; ipex-bfloat16, and ipex-int8 and ipex-int4, which round them again
    transformers      the same model in float32, as it is
    llama.cpp         llama-cpp-python
    openvino          openvino-genai, which reads the file itself

Those that are not installed are left out; `--path BACKEND=FOLDER` adds a folder of `pip install --target` for one.
Prompts are random tokens, and greedy search goes on after the end of a text. Prints Markdown: milliseconds, medians of
the rounds; how many times as long as ipex takes; and the resident memory of the process, in MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BACKENDS = (
    "ipex",
    "ipex-bfloat16",
    "ipex-int8",
    "ipex-int4",
    "ipex-float32",
    "transformers",
    "llama.cpp",
    "openvino",
)
Tokens = Callable[[list[int], int], Iterator[Any]]  # a prompt and a count; yields as each token is there


def _plain(model: Any) -> Any:
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
                min_new_tokens=count,
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
    if backend == "ipex":
        return _of_transformers(llm.optimize(model, inplace=True))
    model = _plain(model)
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


def work(backend: str, path: str, threads: int) -> None:
    """Answer each line, a prompt's length and a count, with the seconds to the first token and of each next one."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print
    tokens = _ready(backend, path, threads)
    print("ready", file=answers)
    for line in sys.stdin:
        length, count, seed = map(int, line.split())
        prompt = random.Random(seed).choices(range(100, 20_000), k=length)
        start = time.perf_counter()
        times = list(tokens(prompt, count))
        each = (times[-1] - times[0]) / (count - 1)
        print(json.dumps([times[0] - start, each, _resident_mb()]), file=answers)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompts", type=int, nargs="+", default=[128, 1024], help="their lengths")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--path", action="append", default=[], metavar="BACKEND=FOLDER")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.file, options.threads)
        return 0
    folders = dict(each.split("=", 1) for each in options.path)
    processes: dict[str, subprocess.Popen[str]] = {}
    for backend in options.backends:
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
        if backend in folders:
            environment["PYTHONPATH"] = folders[backend]
        command = [sys.executable, "-W", "ignore", __file__, options.file, "--threads", str(options.threads)]
        process = subprocess.Popen(
            [*command, "--worker", backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert process.stdout is not None
        if process.stdout.readline() == "ready\n":
            processes[backend] = process
        else:
            print(f"{backend}: left out, it does not start", file=sys.stderr)
    print(f"{Path(options.file).name}, {options.threads} threads, {options.tokens} tokens\n")
    print("| prompt | backend | first token, ms | of ipex's | each next, ms | of ipex's | MB |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for length in options.prompts:
        found: dict[str, list[list[float]]] = {backend: [] for backend in processes}
        for number in range(options.rounds + 1):
            for backend, process in processes.items():
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(f"{length} {options.tokens} {number}\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
                if number:  # the first warms up
                    found[backend].append(answer)
        base = [statistics.median(column) for column in zip(*found["ipex"])] if "ipex" in found else None
        for backend, rows in found.items():
            first, each, memory = (statistics.median(column) for column in zip(*rows))
            of_first, of_each = (f"{first / base[0]:.2f}", f"{each / base[1]:.2f}") if base else ("", "")
            times = f"{first * 1e3:.1f} | {of_first} | {each * 1e3:.2f} | {of_each}"
            print(f"| {length} | {backend} | {times} | {memory:.0f} |", flush=True)
    for process in processes.values():
        process.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
