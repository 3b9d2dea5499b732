"""Time to the first token and of each next one, of a GGUF file in ipex and its peers, in turn.

    python -m benchmarks.llm SmolLM2-135M-Instruct.Q4_1.gguf --threads 1 --prompts 128 1024 --tokens 64
    python -m benchmarks.llm MODEL.gguf --path llama.cpp=FOLDER --path openvino=FOLDER --batch 1 8

Each backend has a process of its own, in which the model is ready, and computes in its turn alone. The backends:

    ipex              ipex.llm.optimize(ipex.llm.from_gguf(FILE)): the file's own integers
    ipex-rows8        the same with WoqLowpMode.INT8, which rounds what linears are given to 8 bits; ipex-rows16: to 16
    ipex-float32      the same numbers in float32; ipex-bfloat16, and ipex-int8 and ipex-int4, which round them again
    transformers      the same model in float32, as it is
    llama.cpp         llama-cpp-python
    openvino          openvino-genai, which reads the file itself; with one text alone

Those that are not installed are left out; `--path BACKEND=FOLDER` adds a folder of `pip install --target` for one.
Prompts are random tokens, and greedy search goes on after the end of a text. `python -m benchmarks.random_gguf` writes
files with the sizes of other models. Prints Markdown: milliseconds, medians of the rounds; how many times as long as
ipex takes; tokens a second of all texts; the bytes of the file's weights that steps read a second, of what the
fastest of the processes reads of a large array; and the resident memory of the process, in MB.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from ipex.bench.process import Process, WorkerFailed
from ipex.llm._gguf import GGUF

LIMIT_SECONDS = 600
BACKENDS = (
    "ipex",
    "ipex-rows16",
    "ipex-rows8",
    "ipex-bfloat16",
    "ipex-int8",
    "ipex-int4",
    "ipex-float32",
    "transformers",
    "llama.cpp",
    "openvino",
)


def weights_read(path: str, batch: int) -> int:
    """Return the bytes of the weights that a step reads: all but the rows of a table, and of experts some."""
    file = GGUF(path)
    used, experts = (
        file.fields.get(f"{file.fields['general.architecture']}.expert_{n}", 1) for n in ("used_count", "count")
    )
    total = 0.0
    for name in file.names():
        if name == "token_embd.weight" and "output.weight" in file.names():
            continue
        share = min(used * batch, experts) / experts if "_exps." in name else 1
        total += share * file.size(name)
    return round(total)


def ready(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Process], float]:
    """A process with the model for each backend that is there, and how many bytes the fastest reads a second."""
    paths = dict(each.split("=", 1) for each in options.path)
    found, rate = {}, 0.0
    for backend in options.backends:
        first = [paths[backend]] if backend in paths else []
        process = Process(options.threads, folder, folder / "log.txt", "benchmarks.llm_worker", first)
        try:
            answer = process.ask(
                "prepare",
                LIMIT_SECONDS,
                backend=backend,
                path=options.file,
                threads=options.threads,
                room=max(options.prompts) + options.tokens,
                batch=max(options.batch),
            )
            found[backend], rate = process, max(rate, answer["rate"])
            how = f"{answer['seconds']:.1f} s, at most {answer['peak']:.0f} MB"
            print(f"{backend}: ready in {how}; reads {answer['rate'] / 1e9:.1f} GB/s", file=sys.stderr)
        except WorkerFailed as error:
            print(f"{backend}: left out, {error}", file=sys.stderr)
    return found, rate


def measure(processes: dict[str, Process], rate: float, length: int, batch: int, options: argparse.Namespace) -> None:
    """Print the rows of one length of prompts, and number of texts."""
    left = ("openvino",) if batch > 1 else ()
    found: dict[str, list[list[float]]] = {backend: [] for backend in processes if backend not in left}
    for number in range(options.rounds + 1):
        for backend in found:
            order = {"length": length, "count": options.tokens, "seed": number, "batch": batch}
            answer = processes[backend].ask("round", LIMIT_SECONDS, **order)
            if number:  # the first warms up
                found[backend].append(answer["numbers"])
    base = [statistics.median(column) for column in zip(*found["ipex"])] if "ipex" in found else None
    for backend, rows in found.items():
        first, each, memory = (statistics.median(column) for column in zip(*rows))
        of_first, of_each = (f"{first / base[0]:.2f}", f"{each / base[1]:.2f}") if base else ("", "")
        times = f"{first * 1e3:.1f} | {of_first} | {each * 1e3:.2f} | {of_each}"
        share = weights_read(options.file, batch) / each / rate
        rest = f"{batch / each:.1f} | {share:.2f} | {memory:.0f}"
        print(f"| {length} | {batch} | {backend} | {times} | {rest} |", flush=True)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompts", type=int, nargs="+", default=[128, 1024], help="their lengths")
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="texts that are generated at once")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--path", action="append", default=[], metavar="BACKEND=FOLDER")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        processes, rate = ready(options, Path(folder))
        print(f"{Path(options.file).name}, {options.threads} threads, {options.tokens} tokens\n")
        print(
            "| prompt | texts | backend | first, ms | of ipex's | each next, ms | of ipex's | tokens/s | of rate | MB |"
        )
        print("|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|")
        for length in options.prompts:
            for batch in options.batch:
                measure(processes, rate, length, batch, options)
        for process in processes.values():
            process.end(at_once=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
