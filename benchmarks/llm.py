"""Time to the first token and of each next one, of a GGUF file in ipex and its peers, in turn.

    python -m benchmarks.llm SmolLM2-135M-Instruct.Q4_1.gguf --threads 1 --prompts 128 1024 --tokens 64
    python -m benchmarks.llm MODEL.gguf --path llama.cpp=FOLDER --path openvino=FOLDER

Each backend has a process of its own, in which the model is ready, and computes in its turn alone. The backends:

    ipex              ipex.llm.optimize(ipex.llm.from_gguf(FILE)): the file's own integers
    ipex-rows8        the same with WoqLowpMode.INT8, which rounds what linears are given to 8 bits; ipex-rows16: to 16
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
import statistics
import sys
import tempfile
from pathlib import Path

from ipex.bench.process import Process, WorkerFailed

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


def ready(options: argparse.Namespace, folder: Path) -> dict[str, Process]:
    """A process for each backend that is there, with the model."""
    paths = dict(each.split("=", 1) for each in options.path)
    found = {}
    for backend in options.backends:
        first = [paths[backend]] if backend in paths else []
        process = Process(options.threads, folder, folder / "log.txt", "benchmarks.llm_worker", first)
        try:
            process.ask("prepare", LIMIT_SECONDS, backend=backend, path=options.file, threads=options.threads)
            found[backend] = process
        except WorkerFailed as error:
            print(f"{backend}: left out, {error}", file=sys.stderr)
    return found


def measure(processes: dict[str, Process], length: int, options: argparse.Namespace) -> None:
    """Print the rows of one length of prompts."""
    found: dict[str, list[list[float]]] = {backend: [] for backend in processes}
    for number in range(options.rounds + 1):
        for backend, process in processes.items():
            answer = process.ask("round", LIMIT_SECONDS, length=length, count=options.tokens, seed=number)
            if number:  # the first warms up
                found[backend].append(answer["numbers"])
    base = [statistics.median(column) for column in zip(*found["ipex"])] if "ipex" in found else None
    for backend, rows in found.items():
        first, each, memory = (statistics.median(column) for column in zip(*rows))
        of_first, of_each = (f"{first / base[0]:.2f}", f"{each / base[1]:.2f}") if base else ("", "")
        times = f"{first * 1e3:.1f} | {of_first} | {each * 1e3:.2f} | {of_each}"
        print(f"| {length} | {backend} | {times} | {memory:.0f} |", flush=True)


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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        processes = ready(options, Path(folder))
        print(f"{Path(options.file).name}, {options.threads} threads, {options.tokens} tokens\n")
        print("| prompt | backend | first token, ms | of ipex's | each next, ms | of ipex's | MB |")
        print("|---:|---|---:|---:|---:|---:|---:|")
        for length in options.prompts:
            measure(processes, length, options)
        for process in processes.values():
            process.end(at_once=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
