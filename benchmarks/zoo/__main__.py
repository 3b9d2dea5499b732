"""The options of `python -m benchmarks.zoo`, and the order of the work."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from ipex.bench.backends import BACKENDS

from . import catalogue
from .examine import Effort, examine
from .progress import Progress
from .row import Row, append_row, read_rows
from .table import page


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo",
        description="Compares real models, optimised by ipex, with eager, frozen TorchScript and peers. Every model "
        "has a process of its own and a line in the file of results; models that stand there are not run again. All "
        "of them take most of a day on 2 cores.",
    )
    made.add_argument("--libraries", type=_names, default=catalogue.LIBRARIES, help=",".join(catalogue.LIBRARIES))
    made.add_argument("--models", type=re.compile, default=re.compile(""), help="a regular expression: timm/resnet")
    made.add_argument("--sample", type=int, help="only so many models, drawn from all libraries in turn")
    made.add_argument("--seed", type=int, default=0, help="of the sample and of all weights (0)")
    made.add_argument("--threads", type=int, default=2, help="(2)")
    made.add_argument("--seconds", type=float, default=2.0, help="of timing per model (2)")
    made.add_argument("--jobs", type=int, default=1, help="models at a time, each on cores of its own (1)")
    made.add_argument("--no-times", action="store_true", help="compare values, dtypes and strides only")
    made.add_argument("--limit", type=float, default=180, help="seconds until a model, or a peer, is given up (180)")
    made.add_argument("--peers", type=_names, default=(), help=f"of {','.join(BACKENDS)}")
    made.add_argument("--results", type=Path, default=Path("build/zoo.jsonl"), help="(build/zoo.jsonl)")
    made.add_argument("--log", type=Path, default=Path("build/zoo.log"), help="what libraries said (build/zoo.log)")
    made.add_argument("--markdown", type=Path, help="write the page to this file, of all results")
    return made


def _names(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the zoo. Return 1 if something was wrong."""
    options = parser().parse_args(arguments)
    libraries = []
    for library in options.libraries:
        why = catalogue.missing(library)
        if why:
            print(f"zoo: goes on without {library}: {why}", file=sys.stderr)
        else:
            libraries.append(library)
    seed = options.seed if options.sample is not None else None
    names = [name for name in catalogue.in_order(libraries, seed) if options.models.search(name)]
    print(f"zoo: {len(names)} models, seed {options.seed}", file=sys.stderr)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    seconds = None if options.no_times else options.seconds
    effort = Effort(options.threads, options.seed, seconds, options.limit, options.peers, options.log)
    try:
        run(names, options.sample, effort, options.results, options.jobs)
    except KeyboardInterrupt:
        print("\nzoo: interrupted; the same command goes on", file=sys.stderr)
    rows = read_rows(options.results)
    if options.markdown:
        own = sys.argv[1:] if arguments is None else arguments
        options.markdown.write_text(
            page(
                rows,
                shlex.join(["python", "-m", "benchmarks.zoo", *own]),
            )
        )
    return int(any(row.is_bad for row in rows))


def run(names: list[str], sample: int | None, effort: Effort, results: Path, jobs: int = 1) -> None:
    """Examine the models that have no row yet, in this order, until the sample is complete."""
    asked = (effort.threads, effort.seed, effort.seconds is not None, effort.peers)
    rows = {row.name: row for row in read_rows(results) if row.answers(*asked)}
    wanted = len(names) if sample is None else min(sample, len(names))
    progress = Progress(wanted, 0)
    left, lock = iter(names), threading.Lock()

    def next_name() -> str | None:
        with lock:
            while progress.done < wanted:
                name = next(left, None)
                if name is None or name not in rows:
                    return name
                progress.done += rows[name].status != "left out"
            return None

    def work(cores: set[int]) -> None:
        os.sched_setaffinity(0, cores)  # of this thread, and of the processes that it starts
        while (name := next_name()) is not None:
            why = catalogue.why_left_out(name)
            row = Row(name, effort.threads, effort.seed, "left out", why) if why else examine(name, effort)
            with lock:
                append_row(results, row)
                progress.show(row)

    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // jobs)
    workers = [threading.Thread(target=work, args=({*cores[i * share :][:share]},), daemon=True) for i in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    progress.end()


if __name__ == "__main__":
    sys.exit(main())
