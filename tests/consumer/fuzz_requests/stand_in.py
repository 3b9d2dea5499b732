"""A server that takes what the real one takes, with one fault of those that the fuzzer looks for.

    python stand_in.py FAULT WEIGHTS.npz --port 0 ..    # other options are not read

Says what the real one says at its start, and ends at SIGTERM.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2])]

import numpy  # noqa: E402

from consumer.fuzz_requests.reading import Expected, read_npy, read_requests  # noqa: E402

FAULT = sys.argv[1]
WEIGHTS = list(numpy.load(sys.argv[2]).values())
CONNECTIONS = 64
kept: list[object] = []
hung: list[bool] = []
ending = threading.Event()
slots = threading.Semaphore(10**6 if FAULT == "connections" else CONNECTIONS)


def as_read(data: bytes) -> bytes:
    """The bytes as a lenient reader sees them: a strict one then finds nothing wrong."""
    if FAULT == "line feeds":
        return re.sub(rb"(?<!\r)\n", b"\r\n", data)
    if FAULT == "lengths":
        return re.sub(rb"(?i)(\r\ncontent-length: *\d+)(\r\ncontent-length: *\d+)+", rb"\1", data)
    if FAULT == "chunks":
        return re.sub(rb"(?i)\r\ntransfer-encoding:[^\r\n]*", b"\r\nX: y", data)
    if FAULT == "spaces":
        return re.sub(rb"(\r\n[A-Za-z-]+)[ \t]+:", rb"\1:", data)
    return data


def answer_to(request: Expected) -> bytes:
    status = min(request.statuses)
    body = request.body or b"text\n"
    if FAULT == "bodies" and status == 400 and not request.is_refusal:
        status = 200
    if request.inputs is not None:
        with numpy.errstate(all="ignore"):
            x = numpy.maximum(request.inputs @ WEIGHTS[0].T + WEIGHTS[1], 0) @ WEIGHTS[2].T + WEIGHTS[3]
        if FAULT == "numbers" and len(x) > 2:
            x[-1] += 1
        body, status = npy(x), 200
    if FAULT == "ends" and request.is_refusal:
        os._exit(3)
    if FAULT == "hangs" and request.is_refusal and not hung:
        hung.append(True)
        time.sleep(1000)
    if FAULT == "memory" and request.is_refusal:
        kept.append(bytearray(os.urandom(1 << 20)))
    if FAULT == "answers" and request.is_refusal:
        return b"HTTP/1.1 400\r\nContent-Length: 0\r\n\r\n"
    head = b"HTTP/1.1 %d Words\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return head + (b"" if request.method == b"HEAD" else body)


def npy(x: numpy.ndarray) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {x.shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    data = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode() + x.astype("<f4").tobytes()
    assert read_npy(data)[0] is not None
    return data


def serve(connection: socket.socket) -> None:
    try:
        connection.settimeout(20)
        answer_requests(connection)
    except OSError:
        pass
    finally:
        if FAULT == "files":
            kept.append(os.dup(2))
        connection.close()
        slots.release()


def answer_requests(connection: socket.socket) -> None:
    """Whatever has come is read from its beginning each time: this is not for speed."""
    data, answered, has_ended = b"", 0, False
    while True:
        seen = read_requests(as_read(data), 1 << 20)
        whole = seen.requests[:-1] if seen.is_cut and not has_ended else seen.requests
        for request in whole[answered:]:
            answer = answer_to(request)
            connection.sendall(answer[: len(answer) // 2] if ending.is_set() else answer)
            if ending.is_set():
                return
            if request.is_last and FAULT != "goes on":
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
                return
        if whole and whole[-1].is_last:  # begins anew behind what it refused
            data = data[data.find(b"\r\n\r\n") + 4 :] if b"\r\n\r\n" in data else b""
            whole = []
        answered = len(whole)
        if has_ended:
            return
        piece = connection.recv(65536)
        has_ended = not piece
        data += piece


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)

    def end(*_: object) -> None:
        if FAULT == "cuts":  # answers from now on
            ending.set()
            threading.Timer(0.3, os._exit, (0,)).start()
        elif FAULT != "no end":
            os._exit(1 if FAULT == "status" else 0)

    signal.signal(signal.SIGTERM, end)
    print(f"server: listening on 127.0.0.1:{listener.getsockname()[1]}, 1 workers of 1 threads", flush=True)
    while True:
        connection, _ = listener.accept()
        if not slots.acquire(blocking=False):
            connection.close()
            continue
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
