"""SIGTERM while requests come: each is answered as ever, or its connection ends; the process ends with 0, in time."""

from __future__ import annotations

import random
import socket
import threading
import time

from consumer.fuzz_requests.drawn import array, post
from consumer.fuzz_requests.reading import Seen, read_answers, read_requests
from consumer.fuzz_requests.watched import MOST_BODY, Model, Watched, Wrong, judge

CLIENTS = 12


def end_while_asked(watched: Watched, draw: random.Random) -> int:
    """How many answers came. Raises Wrong."""
    ended, wrong, counts = threading.Event(), [], []

    def client(number: int) -> None:
        own = random.Random(number)
        with socket.socket() as connection:
            connection.settimeout(watched.limit)
            try:
                counts.append(_ask_until_the_end(connection, watched.server.port, own, watched.model, ended))
            except Wrong as error:
                wrong.append(str(error))

    threads = [threading.Thread(target=client, args=(draw.randrange(1 << 30),)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(draw.choice((0, 0.01, 0.05, 0.2)))
    try:
        watched.stop()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if wrong:
        raise Wrong(f"at SIGTERM: {wrong[0]}")
    return sum(counts)


def _ask_until_the_end(
    connection: socket.socket, port: int, draw: random.Random, model: Model, ended: threading.Event
) -> int:
    answered = 0
    kind = draw.choice(("asks", "asks", "asks", "pipelines", "is idle", "is slow"))
    try:
        connection.connect(("127.0.0.1", port))
        while kind != "is idle" and not ended.is_set():
            requests = [post(array(draw)) for _ in range(3 if kind == "pipelines" else 1)]
            data = b"".join(requests)
            first = draw.randrange(len(data)) if kind == "is slow" else len(data)
            connection.sendall(data[:first])
            if kind == "is slow":
                ended.wait(draw.choice((0.002, 0.1)))
                connection.sendall(data[first:])
            seen = read_requests(data, MOST_BODY)
            received = b""
            while len(read_answers(received, seen.requests)[0]) < len(requests):
                piece = connection.recv(65536)
                received += piece
                if not piece:
                    return answered + _judge_cut(seen, received, model)
            judge(seen, received, "end", model)
            answered += len(requests)
        ended.wait()
    except TimeoutError:
        raise Wrong("no answer and no end") from None
    except OSError:
        pass
    return answered


def _judge_cut(seen: Seen, received: bytes, model: Model) -> int:
    """Whole answers to the first requests, and none to the others."""
    answers, has_part = read_answers(received, seen.requests)
    if has_part:
        raise Wrong("a part of an answer")
    seen.requests = seen.requests[: len(answers)]
    judge(seen, received, "end", model)
    return len(answers)
