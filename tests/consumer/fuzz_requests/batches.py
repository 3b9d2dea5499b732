"""Cases in batches against a server: after each it holds what it held, and answers a good request."""

from __future__ import annotations

import concurrent.futures
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from consumer.fuzz_requests.drawn import draw_case, draw_delivery
from consumer.fuzz_requests.reading import read_requests
from consumer.fuzz_requests.shutdown import end_while_asked
from consumer.fuzz_requests.watched import MOST_BODY, Model, Watched, Wrong, exchange
from consumer.server_process import killed_in_the_end

CASES_OF_A_BATCH = 200
CLIENTS = 8
Command = list[str | Path]  # of the server, but for its options


class Run:
    """Cases against a server, which is started again where it ended or went wrong."""

    def __init__(self, command: Command, model: Model, seed: int, limit: float) -> None:
        self.command, self.model, self.seed, self.limit = command, model, seed, limit
        self.counts: Counter[str] = Counter()
        self.wrong: dict[str, list[int]] = defaultdict(list)

    def start(self) -> Watched:
        return Watched(self.command, self.model, self.limit)

    def draw(self, index: int | str) -> random.Random:
        return random.Random(f"{self.seed} {index}")

    def add_wrong(self, text: str, index: int) -> None:
        self.counts["wrong"] += 1
        self.wrong[text].append(index)
        if len(self.wrong[text]) == 1:
            print(f"WRONG {text} (--case {index})", flush=True)

    def run_case(self, watched: Watched, index: int) -> tuple[int, str, str]:
        """The case, what became of it, and what was wrong."""
        draw = self.draw(index)
        kind, data = draw_case(draw)
        try:
            return index, watched.run(data, draw_delivery(data, draw)), ""
        except Wrong as error:
            return index, "", f"{kind}: {error}"
        except OSError as error:
            return index, "", f"{kind}: {type(error).__name__}"

    def run_batches(self, cases: int, seconds: float = float("inf")) -> None:
        end = time.monotonic() + seconds
        places = iter(range(0, cases, CASES_OF_A_BATCH))
        first = next(places, None)
        while first is not None and time.monotonic() < end:
            watched = self.start()
            with killed_in_the_end(watched.server):
                while first is not None and time.monotonic() < end:
                    goes_on = self.run_batch(watched, range(first, min(cases, first + CASES_OF_A_BATCH)))
                    first = next(places, None)
                    if not goes_on:
                        break
                else:
                    self.run_alone("the end", watched.stop)

    def run_batch(self, watched: Watched, cases: range) -> bool:
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            for index, became, wrong in pool.map(lambda index: self.run_case(watched, index), cases):
                if wrong:
                    self.add_wrong(wrong, index)
                else:
                    self.counts[became] += 1
        draw = self.draw(f"crowd {cases.start}")
        try:
            watched.check(draw)
            watched.crowd(draw)
            watched.check(draw)
        except (Wrong, OSError) as error:
            self.add_wrong(f"after a batch: {error}", cases.start)
            return False
        return True

    def run_alone(self, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except (Wrong, OSError) as error:
            self.add_wrong(f"{what}: {' '.join(str(error).split())[:200]}", 0)

    def run_ends(self, ends: int) -> None:
        for i in range(ends):
            watched = self.start()
            with killed_in_the_end(watched.server):
                self.run_alone("the end", lambda watched=watched, i=i: self.count_end(watched, i))

    def count_end(self, watched: Watched, i: int) -> None:
        self.counts["answered around SIGTERM"] += end_while_asked(watched, self.draw(f"end {i}"))

    def show(self, index: int) -> int:
        """Run one case alone, and print it."""
        draw = self.draw(index)
        kind, data = draw_case(draw)
        delivery = draw_delivery(data, draw)
        seen = read_requests(data, MOST_BODY)
        print(f"{kind}\n{delivery}\n{seen}", flush=True)
        watched = self.start()
        with killed_in_the_end(watched.server):
            print(exchange(watched.server.port, delivery, seen, self.limit))
            print(self.run_case(watched, index)[1:])
            self.run_alone("after it", lambda: watched.check(draw))
            print(f"{watched.resident_bytes() >> 20} MB")
        return 1 if self.wrong else 0
