"""The peers' time over that of ipex with 4, 8, 16 .. threads, for several models in a few minutes.

    python -m benchmarks.peers_by_threads resnet50 timm/convnext_tiny --threads 4 8 16

Measures what `ipex bench --batch 1` measures, with its workers, and only this: of each model the backends are made
ready side by side, a process for each number of threads, and then timed in turn while nothing else runs. So most of the
wait, which is loading and exporting, happens once and on all cores. Prints Markdown: ms of a call, the median of the
rounds; the median of the rounds' ratios, and the quartiles. A name with a slash is a model of the zoo, with --seed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ipex.bench import machine
from ipex.bench.process import Process, WorkerFailed

LIMIT_SECONDS = 300
Key = tuple[str, int]  # a backend, a number of threads


def write(model: str, seed: int, threads: int, folder: Path, log: Path) -> None:
    """Write the model, its inputs and eager's results. WorkerFailed if the model can't be had."""
    if "/" not in model:
        maker = Process(threads, folder, log)
        maker.ask("reference", LIMIT_SECONDS, name=model, batch=1, inputs=[], folder=str(folder))
    else:
        maker = Process(threads, folder, log, worker="benchmarks.zoo.worker")
        answer = maker.ask("build", LIMIT_SECONDS, name=model, seed=seed, threads=threads)
        if "note" in answer:
            raise WorkerFailed(answer["note"])
        maker.ask("write", LIMIT_SECONDS, folder=str(folder))
    maker.end()


def prepared(model: str, options: argparse.Namespace, folder: Path) -> dict[Key, Process]:
    """Return a process for each backend and number of threads in which the model is ready and gives eager's values."""
    log = folder / "log.txt"

    def prepare(backend: str, threads: int) -> Process | str:
        process = Process(threads, folder, log)
        try:
            answer = process.ask("prepare", LIMIT_SECONDS, backend=backend, folder=str(folder), threads=threads)
        except WorkerFailed as error:
            return str(error)
        if answer["status"] == "ok":
            return process
        process.end(at_once=True)
        return f"{answer['status']}: {answer.get('note', answer.get('difference'))}"

    write(model, options.seed, max(options.threads), folder, log)
    found: dict[Key, Process] = {}
    # The first of each backend alone: it writes what the others read.
    for numbers in (options.threads[:1], options.threads[1:]):
        keys = [(backend, threads) for backend in options.backends for threads in numbers]
        with ThreadPoolExecutor(max(1, len(keys))) as pool:
            for key, result in zip(keys, pool.map(lambda key: prepare(*key), keys)):
                if isinstance(result, Process):
                    found[key] = result
                else:
                    print(f"{model}, {key[0]}, {key[1]} threads: {result}", file=sys.stderr)
    return found


def rounds(processes: dict[str, Process], count: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of a call, by backend, round by round; each round begins with the next backend."""
    names = list(processes)
    times: dict[str, list[float]] = {name: [] for name in names}
    for i in range(count):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(processes[name].ask("round", LIMIT_SECONDS, seconds=seconds)["seconds"])
    return times


def ratio(slow: list[float], fast: list[float]) -> tuple[float, str]:
    """Return the median of the rounds' ratios, and it with the quartiles."""
    ratios = [a / b for a, b in zip(slow, fast)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return middle, f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--backends", nargs="+", default=["ipex", "onnxruntime", "openvino"], help="ours first")
    parser.add_argument("--seed", type=int, default=0, help="of the weights of a model of the zoo")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.15, help="of a backend in a round")
    options = parser.parse_args()
    ours, *peers = options.backends
    print(f"load average before: {machine.load_average():.1f}\n")
    print("| model | threads | " + " | ".join(f"{name}, ms" for name in options.backends), end=" | ")
    print(" | ".join(f"{name} / {ours}" for name in peers) + " |")
    print("|---|---:|" + "---:|" * (2 * len(peers) + 1))
    least: dict[int, list[float]] = {threads: [] for threads in options.threads}
    for model in options.models:
        with tempfile.TemporaryDirectory(prefix="ipex-bench-") as folder:
            try:
                found = prepared(model, options, Path(folder))
            except WorkerFailed as why:
                print(f"{model}: {why}", file=sys.stderr)
                continue
            for threads in options.threads:
                alike = {name: found[name, threads] for name in options.backends if (name, threads) in found}
                if ours not in alike:
                    continue
                times = rounds(alike, options.rounds, options.seconds)
                texts = [f"{1e3 * statistics.median(times[n]):.2f}" if n in times else "" for n in options.backends]
                of_peers = {name: ratio(times[name], times[ours]) for name in peers if name in times}
                texts += [of_peers[name][1] if name in of_peers else "" for name in peers]
                print(f"| {model} | {threads} | " + " | ".join(texts) + " |", flush=True)
                if of_peers:
                    least[threads].append(min(middle for middle, _ in of_peers.values()))
            for process in found.values():
                process.end(at_once=True)
    for threads, ratios in least.items():
        if ratios:
            mean = f"{statistics.geometric_mean(ratios):.2f} in the geometric mean of {len(ratios)}"
            print(f"\n{threads} threads: best peer / {ours} {mean}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
