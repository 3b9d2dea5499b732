"""The options of `python -m ipex bench`, and the order of the work."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from . import chart, machine, markdown
from .backends import BACKENDS, find
from .cell import Effort, Say, measure
from .models import MODELS
from .process import Process, WorkerFailed
from .results import Cell, Results
from .subject import Subject, subjects

BUSY = 0.5


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = argparse.ArgumentParser(
        prog="ipex bench",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=100),
        description="Times a model in ipex and in its peers, each in a process of its own, in turn, and checks every "
        "result against eager. Progress goes to stderr, tables in Markdown to stdout. Each model has a small batch "
        "and a larger one, timed with the most threads only; --batch times all with all. All models take about an hour "
        "on 2 cores.",
    )
    made.add_argument("model", nargs="*", help=f"a TorchScript file, or of these: {', '.join(MODELS)}")
    made.add_argument("--models", type=_names, default=(), help="the same, with commas; `all` is all of these")
    made.add_argument("--input", action="append", default=[], metavar="1x3x224x224", help="of a file; 1x9:int64:30522")
    made.add_argument("--backends", type=_names, default=tuple(BACKENDS), help=f"of {','.join(BACKENDS)}")
    made.add_argument("--threads", type=_numbers, default=(1, 2), help="numbers of threads (1,2)")
    made.add_argument("--batch", type=_numbers, default=(), help="batch sizes instead of each model's own")
    made.add_argument("--seconds", type=float, default=1.5, help="of timing per backend and cell (1.5)")
    made.add_argument("--rounds", type=int, default=10, help="into which they are divided (10)")
    made.add_argument("--json", type=Path, help="write everything that was measured to this file")
    made.add_argument("--markdown", type=Path, help="write the tables to this file, too")
    made.add_argument("--log", type=Path, help="keep in this file what the backends said")
    made.add_argument("--chart", type=Path, help="write a picture, SVG, to this file")
    return made


def _names(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in _names(text))
    if not numbers or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"expected numbers from 1 on, got {text!r}")
    return numbers


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser().parse_args(arguments)
    names = [*options.model, *options.models]
    if "all" in names:
        names = list(MODELS)
    if not names:
        parser().error("expected a model")
    try:
        todo = [s for name in names for s in plan(name, options)]
        for backend in options.backends:
            find(backend)
    except (ValueError, ImportError, AttributeError) as error:
        parser().error(str(error))
    for path in (options.json, options.markdown, options.chart, options.log):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
    settings = {key: getattr(options, key) for key in ("backends", "threads", "seconds", "rounds")}
    settings["load_average_before"] = load = machine.load_average()
    if load > BUSY:
        _say(f"the load average is {load:.1f}: the machine does other work too, and several threads suffer most")
    results = Results(machine.describe(), settings, {})
    with tempfile.TemporaryDirectory(prefix="ipex-bench-") as folder:
        try:
            _measure_all(todo, options, Path(folder), results)
        except KeyboardInterrupt:
            print("ipex bench: interrupted; what follows is what there is", file=sys.stderr)
    text = markdown.tables(results)
    print(text)
    _write(results, options)
    if options.markdown:
        options.markdown.write_text(text)


def plan(name: str, options: argparse.Namespace) -> list[tuple[Subject, tuple[int, ...]]]:
    """Return what is timed of a model, and with how many threads."""
    found = subjects(name, options.batch, tuple(options.input))
    few = options.threads if options.batch else (max(options.threads),)
    return [(subject, options.threads if i == 0 else few) for i, subject in enumerate(found)]


def _measure_all(
    todo: list[tuple[Subject, tuple[int, ...]]], options: argparse.Namespace, folder: Path, results: Results
) -> None:
    effort = Effort(options.seconds, options.rounds, options.log or folder / "log.txt")
    start = time.monotonic()
    results.settings["minutes"] = 0
    maker = Process(max(options.threads), folder, effort.log)
    _say("what matrix products reach here")
    for threads in options.threads:
        results.peak[str(threads)] = maker.ask("peak", 120, threads=threads)["operations_per_second"]
    count = sum(len(threads) for _, threads in todo)
    seen: set[str] = set()
    for i, (subject, numbers) in enumerate(todo):
        own = folder / str(i)
        own.mkdir()
        try:
            asked = {"name": subject.name, "batch": subject.batch, "inputs": list(subject.inputs), "folder": str(own)}
            operations = maker.ask("reference", effort.limit_seconds, **asked)["operations"]
        except WorkerFailed as error:
            results.left_out.append(f"{subject.title}, batch {subject.batch}: does not run in eager: {error}")
            _say(results.left_out[-1])
            maker = Process(max(options.threads), folder, effort.log)
            continue
        for threads in numbers:
            cell = Cell(subject.name, subject.title, subject.batch, threads, operations)
            at = f"{len(results.cells) + 1}/{count}, {results.settings['minutes']:.0f} min"
            head = f"[{at}] {subject.title}, batch {subject.batch}, {threads} threads"
            measure(cell, list(options.backends), own, effort, subject.name not in seen, _with_head(head))
            seen.add(subject.name)
            results.cells.append(cell)
            results.settings["minutes"] = (time.monotonic() - start) / 60
            _write(results, options)
        shutil.rmtree(own)  # gigabytes, with some models
    maker.end()


def _write(results: Results, options: argparse.Namespace) -> None:
    if options.json:
        results.write(options.json)
    if options.chart:
        options.chart.write_text(chart.svg(results))


def _with_head(head: str) -> Say:
    return lambda text: _say(f"{head}: {text}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
