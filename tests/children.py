"""Cases that may end their process, run in forks: what became of each, and which one ended its fork."""

from __future__ import annotations

import argparse
import faulthandler
import mmap
import os
import pickle
import resource
import signal
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

CASES_OF_A_CHILD = 200
SECONDS_OF_A_CASE = 20
BYTES_MORE = 3 << 30  # address space that a child may take


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that knows how many cases, for how long, drawn by which seed, or which one alone."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="run this one alone, in this process")
    return parser


class Child:
    """A fork that runs some cases. `place` is memory that both see: which case it is at."""

    def __init__(self, run: Callable[[int], str], cases: Iterable[int]) -> None:
        self.place = mmap.mmap(-1, 16)
        reads, writes = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reads)
            self._serve(run, cases, writes)
        os.close(writes)
        self.answers = os.fdopen(reads)

    def _serve(self, run: Callable[[int], str], cases: Iterable[int], to: int) -> None:
        faulthandler.disable()  # pytest's
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        if "asan" not in os.environ.get("LD_PRELOAD", ""):  # which reserves terabytes
            used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
            resource.setrlimit(resource.RLIMIT_AS, (used + BYTES_MORE, resource.RLIM_INFINITY))
        with os.fdopen(to, "w", buffering=1) as answers:
            for index in cases:
                self.place[:8] = struct.pack("q", index)
                signal.alarm(SECONDS_OF_A_CASE)
                try:
                    answer = run(index)
                except (MemoryError, OSError, NotImplementedError):  # no room for what it needs, or torch can't make it
                    answer = "left out"
                except Exception as error:  # ours
                    answer = f"the fuzzer: {type(error).__name__}: {' '.join(str(error).split())[:100]}"
                answers.write(f"{index}\t{answer}\n")
        os._exit(0)

    def end(self) -> tuple[dict[int, str], str, int]:
        """Answers by case, how it ended ("" for well), and at which case."""
        with self.answers:
            found = dict(line.rstrip("\n").split("\t") for line in self.answers)
        status = os.waitpid(self.pid, 0)[1]
        how = "hang" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM else ""
        if os.WIFSIGNALED(status) and not how:
            how = signal.Signals(os.WTERMSIG(status)).name
        return {int(i): text for i, text in found.items()}, how, struct.unpack("q", self.place[:8])[0]


def in_a_fork(work: Callable[[], Any]) -> Any:
    """What it returns in a process of its own, which leaves this one as it was."""
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reads)
        with os.fdopen(writes, "wb") as to:
            pickle.dump(work(), to)
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as answer:
        found = answer.read()
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("expected a fork to end well, got another end")
    return pickle.loads(found)


def run_in_children(
    run: Callable[[int], str],
    *,
    good: tuple[str, ...],
    name_of: Callable[[int], str],
    title: str,
    cases: int,
    seconds: float = float("inf"),
    cases_of_a_child: int = CASES_OF_A_CHILD,
) -> dict[str, list[int]]:
    """Run cases 0 to `cases`, print what is none of `good`, and a summary. Return what was wrong, and where."""
    counts: Counter[str] = Counter()
    wrong: dict[str, list[int]] = defaultdict(list)
    next_case, end = 0, time.monotonic() + seconds
    while next_case < cases and time.monotonic() < end:
        some = range(next_case, min(cases, next_case + cases_of_a_child))
        answers, how, place = Child(run, some).end()
        next_case = some.stop
        if how:
            answers[place] = f"{name_of(place)}: {how}"
            next_case = place + 1
        for index, text in answers.items():
            is_good = text in (*good, "left out")
            counts[text if is_good else "wrong"] += 1
            if not is_good:
                wrong[text].append(index)
                if len(wrong[text]) == 1:
                    print(f"WRONG {text} (--case {index})", flush=True)
    print(f"{title}: {sum(counts.values())} cases: {dict(counts)}")
    for text, places in sorted(wrong.items()):
        print(f"  {len(places)} times {text}: cases {places[:5]}")
    return wrong
