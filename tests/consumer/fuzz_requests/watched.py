"""A server that is watched while it is asked: every answer, its memory, its descriptors, and whether it goes on."""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy

from consumer.fuzz_requests.drawn import Delivery, array, post
from consumer.fuzz_requests.reading import Expected, NotHttp, Seen, read_answers, read_npy, read_requests
from consumer.server_process import Server

MOST_BODY = 1 << 20
CONNECTIONS = 64
GRACE = 2
OPTIONS = ("--input", "float32:*x24", "--threads", 1, "--max-delay-us", 100, "--max-body-mb", 1)
OPTIONS = (*OPTIONS, "--connections", CONNECTIONS, "--grace", GRACE)
MOST_BYTES_MORE = 64 << 20

Model = Callable[[numpy.ndarray], numpy.ndarray]


def perceptron(weights: list[numpy.ndarray]) -> Model:
    """What the model of these weights computes."""

    def compute(x: numpy.ndarray) -> numpy.ndarray:
        with numpy.errstate(all="ignore"):
            return numpy.maximum(x @ weights[0].T + weights[1], 0) @ weights[2].T + weights[3]

    return compute


class Wrong(Exception):
    """What the server did that it must not do."""


class Watched:
    """A running server, and what is known of it."""

    def __init__(self, command: list[str | os.PathLike[str]], model: Model, limit: float) -> None:
        self.server = Server([*command, "--port", "0", *map(str, OPTIONS)])
        self.model, self.limit = model, limit
        self.process = Path(f"/proc/{self.server.process.pid}")
        time.sleep(0.1)  # until all threads of the start are there
        self.first, self.first_bytes = self._threads_and_files(), self.resident_bytes()

    def ask(self, draw: random.Random) -> None:
        """One good request on a connection of its own."""
        data = post(array(draw))
        seen = read_requests(data, MOST_BODY)
        try:
            judge(seen, *exchange(self.server.port, Delivery([data]), seen, self.limit), self.model)
        except (Wrong, OSError) as error:
            raise Wrong(f"a good request after that: {error}") from error

    def run(self, data: bytes, delivery: Delivery) -> str:
        """What became of a case: "answered", "refused", "left". Raises Wrong."""
        seen = read_requests(data, MOST_BODY)
        received, how = exchange(self.server.port, delivery, seen, self.limit)
        return judge(seen, received, how, self.model, may_be_gone=delivery.ends or seen.is_cut)

    def check(self, draw: random.Random) -> None:
        """What it holds is what it held, and a good request gets its answer. Raises Wrong."""
        end = time.monotonic() + self.limit
        while self.server.process.poll() is None and self._threads_and_files() != self.first:
            if time.monotonic() > end:
                raise Wrong(f"threads and files: {self._threads_and_files()}, at first {self.first}")
            time.sleep(0.005)
        if self.server.process.poll() is not None:
            raise Wrong(f"the server ended with {self.server.process.returncode}")
        self.ask(draw)
        if self.resident_bytes() > self.first_bytes + MOST_BYTES_MORE:
            raise Wrong(f"{self.resident_bytes() >> 20} MB of memory, at first {self.first_bytes >> 20}")

    def resident_bytes(self) -> int:
        return int((self.process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _threads_and_files(self) -> tuple[int, int]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return len(os.listdir(self.process / "task")), len(os.listdir(self.process / "fd"))
        return 0, 0

    def crowd(self, draw: random.Random) -> None:
        """More connections than are taken, or more bytes of bodies. Raises Wrong where it holds more than it may."""
        has_bodies = draw.random() < 0.5
        data = b"POST /predict HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % MOST_BODY if has_bodies else b"GET /"
        data += bytes(draw.choice((0, 3, 100_000)) if has_bodies else 0)
        ends, resets = draw.random() < 0.5, draw.random() < 0.3
        with contextlib.ExitStack() as clients:
            sockets = []
            for i in range(24 if has_bodies else CONNECTIONS + 32):  # 16 bodies at most are taken
                client = socket.create_connection(("127.0.0.1", self.server.port), timeout=self.limit)
                sockets.append(clients.enter_context(client))
                if resets:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with contextlib.suppress(OSError):  # refused already
                    client.sendall(data[: draw.randrange(len(data) + 1)] if i % 3 else data)
                    if ends:
                        client.shutdown(socket.SHUT_WR)
            if self._threads_and_files()[0] > self.first[0] + CONNECTIONS:
                raise Wrong("a thread for more connections than the limit")
            surplus = 0 if has_bodies or ends else len(sockets) - CONNECTIONS
            end = time.monotonic() + self.limit
            while len(ready := select.select(sockets, [], [], 0)[0]) < surplus:
                if time.monotonic() > end:
                    raise Wrong("more connections than the limit are taken")
                time.sleep(0.005)
            for client in sockets if ends else ready:
                self._check_refusal(client)

    def _check_refusal(self, client: socket.socket) -> None:
        received = b""
        try:
            while piece := client.recv(65536):
                received += piece
        except TimeoutError:
            raise Wrong("no end of a connection of a crowd") from None
        except OSError:
            pass
        answers, _ = _read(received, [Expected(frozenset())])
        if len(answers) > 1 or any(status not in (400, 503) for status in answers):
            raise Wrong(f"answers {answers} to a part of a request")

    def stop(self) -> None:
        """End it, as SIGTERM does. Raises Wrong."""
        try:
            status = self.server.stop(GRACE + self.limit)
        except subprocess.TimeoutExpired:
            raise Wrong("no end at SIGTERM") from None
        except AssertionError as error:  # it wrote to stderr
            raise Wrong(f"the end at SIGTERM: {error}") from None
        if status != 0:
            raise Wrong(f"the end at SIGTERM with {status}")


def _read(received: bytes, requests: list[Expected]) -> tuple[list[int], bool]:
    try:
        answers, has_part = read_answers(received, requests)
    except NotHttp as error:
        raise Wrong(f"an answer that is not HTTP: {error}") from None
    return [answer.status for answer in answers], has_part


def exchange(port: int, delivery: Delivery, seen: Seen, limit: float) -> tuple[bytes, str]:
    """All that the server sends, and how that ended: "end", "late", "reset", "left"."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=limit) as client:
        try:
            for piece in delivery.pieces:
                client.sendall(piece)
                if len(delivery.pieces) > 1:
                    time.sleep(delivery.pause)
                while select.select([client], [], [], 0)[0] and (piece := client.recv(65536)):
                    received += piece
            if delivery.leaves:
                if delivery.leaves == "resets":
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return received, "left"
            waits_for_us = not (seen.requests and seen.requests[-1].is_last) or seen.is_cut
            if delivery.ends or seen.is_cut:
                client.shutdown(socket.SHUT_WR)
                waits_for_us = False
            while True:
                count = _count(received, seen)
                if count > len(seen.requests):
                    return received, "end"
                if waits_for_us and count == len(seen.requests):
                    client.shutdown(socket.SHUT_WR)
                    waits_for_us = False
                piece = client.recv(65536)
                received += piece
                if not piece:
                    return received, "end"
        except TimeoutError:
            return received, "late"
        except OSError:
            return received, "reset"


def _count(received: bytes, seen: Seen) -> int:
    """How many answers are there, or more than there should be where they are none."""
    try:
        return len(read_answers(received, seen.requests)[0])
    except NotHttp:
        return len(seen.requests) + 1


def judge(seen: Seen, received: bytes, how: str, model: Model, may_be_gone: bool = False) -> str:
    """What became of requests: "answered", "refused", "left". Raises Wrong."""
    statuses, has_part = _read(received, seen.requests)
    if len(statuses) > len(seen.requests) or (has_part and len(statuses) == len(seen.requests)):
        raise Wrong("more answers than requests")
    answers, _ = read_answers(received, seen.requests)
    for i, (request, answer) in enumerate(zip(seen.requests, answers)):
        # Who says that nothing more comes may be taken for somebody who has gone.
        if answer.status not in request.statuses and not (
            may_be_gone and request.inputs is not None and answer.status == 499
        ):
            raise Wrong(f"{answer.status} as answer {i}, expected one of {sorted(request.statuses)}")
        if answer.status == 200 and request.method != b"HEAD":
            _check_body(request, answer.body, model)
    if how == "late":
        raise Wrong("no answer, or no end of the connection, within the limit")
    if how == "left":
        return "left"
    ends_early = seen.requests[len(statuses) :]
    if has_part or ends_early:
        is_closed = len(ends_early) == 1 and ends_early[0].is_refusal and (how == "reset" or not has_part)
        if not is_closed and not (how == "reset" and seen.requests[-1].is_last):
            raise Wrong(f"{len(statuses)} answers to {len(seen.requests)} requests, then {how}")
    return "refused" if seen.requests and seen.requests[-1].is_refusal else "answered"


def _check_body(request: Expected, body: bytes, model: Model) -> None:
    if request.body is not None and body != request.body:
        raise Wrong(f"a body {body[:60]!r}, expected {request.body!r}")
    if request.inputs is None:
        return
    result, _ = read_npy(body)
    expected = model(request.inputs)
    if result is None or result.dtype != expected.dtype or result.shape != expected.shape:
        raise Wrong("a body that is no result")
    # Beyond these, results hang on the order of sums.
    is_usual = numpy.all(numpy.abs(request.inputs) < 1e6)
    if is_usual and not numpy.allclose(result, expected, rtol=1e-4, atol=1e-5 * max(1, numpy.abs(expected).max())):
        raise Wrong("a wrong result")
