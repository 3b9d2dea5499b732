"""Mean and 99th percentile of a call while other processes keep cores busy: ipex and its peers, in turn.

    python benchmarks/busy_machine.py mobilenet_v2 bert_base --threads 2 --busy 0 1 2

MODELS are names of `ipex bench`. Each backend has a process of its own, in which the model is ready; one of them
computes at a time, beside `--busy` processes that do nothing but count. `--build FOLDER` adds another build of ipex, a
package that `pip install --target` has left in FOLDER. Prints Markdown: ms of a call, mean and 99th percentile, the
median of the rounds each.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ipex.bench.process import Process, WorkerFailed

LIMIT_SECONDS = 300


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run so many that never wait."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def start(backend: str, options: argparse.Namespace, folder: Path) -> Process:
    """Make the model of `folder` ready in a process."""
    name, _, build = backend.partition(":")
    process = Process(options.threads, folder, folder / "log.txt", first_on_path=[build] if build else [])
    answer = process.ask("prepare", LIMIT_SECONDS, backend=name, folder=str(folder), threads=options.threads)
    if answer["status"] != "ok":
        raise WorkerFailed(f"{answer['status']}: {answer.get('note', answer.get('difference'))}")
    return process


def measure(model: str, options: argparse.Namespace, folder: Path) -> None:
    """Print the rows of a model."""
    maker = Process(options.threads, folder, folder / "log.txt")
    maker.ask("reference", LIMIT_SECONDS, name=model, batch=1, inputs=[], folder=str(folder))
    maker.end()
    found: dict[str, Process] = {}
    for backend in [*options.backends, *(f"ipex:{build}" for build in options.build)]:
        try:
            found[backend] = start(backend, options, folder)
        except WorkerFailed as error:
            print(f"{model}, {backend}: {error}", file=sys.stderr)
    for busy in options.busy:
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in found}
        with busy_processes(busy):
            for _ in range(options.rounds):
                for name, process in found.items():
                    rounds[name].append(process.ask("round", LIMIT_SECONDS, seconds=options.seconds))
        for name, own in rounds.items():
            mean, slow = (
                1e3 * statistics.median(one[key] for one in own) for key in ("mean_seconds", "seconds_of_99_percent")
            )
            worst = 1e3 * max(one["mean_seconds"] for one in own)
            print(f"| {model} | {busy} | {name} | {mean:.2f} | {worst:.2f} | {slow:.2f} |", flush=True)
    for process in found.values():
        process.end(at_once=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2], help="how many busy processes")
    parser.add_argument("--backends", nargs="+", default=["ipex", "onnxruntime", "openvino"])
    parser.add_argument("--build", nargs="*", default=[], help="folders with other builds of ipex")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a backend in a round")
    options = parser.parse_args()
    print(f"{options.threads} threads\n")
    print("| model | busy processes | backend | mean ms | mean of the worst round | 99th percentile |")
    print("|---|---:|---|---:|---:|---:|")
    for model in options.models:
        with tempfile.TemporaryDirectory(prefix="ipex-bench-") as folder:
            measure(model, options, Path(folder))


if __name__ == "__main__":
    main()
