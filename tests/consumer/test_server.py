"""examples/cpp/server over loopback: right under load, polite when full, patient with bad clients, no leaks."""

import concurrent.futures
import contextlib
import http.client
import io
import os
import socket
import struct
import subprocess
import time
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

import ipex
from by_hand import TORCH
from consumer.fuzz_requests.reading import PARSING
from consumer.server_process import WAIT_SECONDS, Server, killed_in_the_end, mlp, npy, running

IDLE_THREADS = 4  # of the server below: main, one that accepts connections, two workers


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A file, and what it computes."""
    path = tmp_path_factory.mktemp("model") / "model.pt"
    eager = mlp()
    ipex.jit_optimize(eager, torch.randn(2, 24)).save(path)
    return path, eager


class Slow(nn.Module):
    """Takes so long that requests meet."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.linear = nn.Linear(256, 256)
        self.times = times

    def forward(self, x):
        for _ in range(self.times):
            x = torch.tanh(self.linear(x))
        return x


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("slow") / "model.pt"
    ipex.jit_optimize(torch.jit.script(Slow(20000).eval())).save(path)
    return path


@pytest.fixture(scope="module")
def server(program, model):
    options = ("--input", "float32:*x24", "--workers", 2, "--threads", 1, "--max-body-mb", 1)
    with running(program, model[0], *options) as server:
        yield server


def array(body):
    with PARSING:
        return torch.from_numpy(numpy.load(io.BytesIO(body)))


def rows(count):
    return torch.randn(count, 24)


@torch.no_grad()
def assert_answers(server, model, x):
    status, body, _ = server.predict(x.numpy())
    assert status == 200, body
    torch.testing.assert_close(array(body), model[1](x))


def ask_often(server, model, seed, times):
    """One client, which keeps its connection."""
    generator = torch.Generator().manual_seed(seed)
    with contextlib.closing(server.connection()) as connection, torch.no_grad():
        for i in range(times):
            x = torch.randn(1 + i % 3, 24, generator=generator)
            connection.request("POST", "/predict", npy(x.numpy()))
            response = connection.getresponse()
            body = response.read()
            assert response.status == 200, body
            torch.testing.assert_close(array(body), model[1](x))
    return times


def load(server, model, clients=8, times=40):
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(lambda seed: ask_often(server, model, seed, times), range(clients)))


def test_results_are_right_under_load_and_requests_are_joined(program, model):
    with running(program, model[0], "--input", "float32:*x24", "--workers", 1, "--threads", 1) as server:
        asked = load(server, model)
        metrics = server.metrics()
    assert metrics['ipex_server_requests_total{code="200"}'] == asked
    assert metrics["ipex_server_rejected_total"] == 0
    assert metrics["ipex_server_latency_seconds_count"] == asked
    assert metrics['ipex_server_latency_seconds_bucket{le="+Inf"}'] == asked
    assert metrics["ipex_server_batch_rows_sum"] == 8 * sum(1 + i % 3 for i in range(40))
    assert metrics["ipex_server_batch_rows_count"] < asked
    assert metrics['ipex_server_batch_rows_bucket{le="8"}'] == metrics["ipex_server_batch_rows_count"]
    assert metrics["ipex_memory_allocated_bytes"] > 0


def test_nothing_is_lost_from_load_to_load(server, model):
    def settled():
        """Open files and figures, when the threads of closed connections have ended."""
        process = Path(f"/proc/{server.process.pid}")
        deadline = time.monotonic() + WAIT_SECONDS
        while len(os.listdir(process / "task")) > IDLE_THREADS:
            assert time.monotonic() < deadline, "threads of connections that are closed"
            time.sleep(0.02)
        return len(os.listdir(process / "fd")), server.metrics()

    load(server, model)
    files, before = settled()
    for _ in range(3):
        load(server, model)
    files_later, after = settled()
    assert files_later == files
    assert after["ipex_memory_allocated_bytes"] == before["ipex_memory_allocated_bytes"]
    assert after["process_resident_memory_bytes"] < before["process_resident_memory_bytes"] + (8 << 20)


def test_a_full_queue_rejects_and_counts(program, slow_model):
    options = ("--input", "float32:*x256", "--max-batch", 1, "--queue", 2, "--threads", 1)
    with running(program, slow_model, *options) as server, concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: server.predict(torch.zeros(1, 256).numpy()), range(12)))
        metrics = server.metrics()
    served = [body for status, body, _ in answers if status == 200]
    rejected = [headers for status, _, headers in answers if status == 503]
    assert len(served) + len(rejected) == 12
    assert len(served) >= 2
    assert rejected
    assert all(headers["Retry-After"] == "1" for headers in rejected)
    assert len(set(served)) == 1
    assert metrics["ipex_server_rejected_total"] == metrics['ipex_server_requests_total{code="503"}'] == len(rejected)


def test_what_was_asked_is_answered_before_the_end(program, slow_model):
    options = ("--input", "float32:*x256", "--max-batch", "1", "--threads", "1")
    server = Server([program, slow_model, "--port", "0", *options])
    with killed_in_the_end(server), concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(server.predict, torch.zeros(1, 256).numpy()) for _ in range(4)]
        while server.metrics()["ipex_server_queued_requests"] < 3:
            assert not any(answer.done() for answer in answers), "the model is too fast for this test"
        assert server.stop() == 0
        assert [answer.result()[0] for answer in answers] == [200] * 4
        with pytest.raises(ConnectionRefusedError):
            server.metrics()


def with_shape(shape):
    """24 numbers with a header that says something of them."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(96)


def test_a_header_may_be_shorter_than_numpy_writes_it(server):
    assert server.request("POST", "/predict", with_shape("(1,24)"))[0] == 200


BAD_BODIES = {
    "shape": (npy(numpy.zeros((1, 23), "f4")), "expected array 0 as float32 of [*, 24], got float32 of [1, 23]."),
    "rank": (npy(numpy.zeros((24,), "f4")), "expected array 0 as float32 of [*, 24], got float32 of [24]."),
    "dtype": (npy(numpy.zeros((1, 24), "i8")), "expected array 0 as float32 of [*, 24], got int64 of [1, 24]."),
    "complex": (npy(numpy.zeros((1, 24), "c8")), "got one of '<c8'."),
    "no rows": (npy(numpy.zeros((0, 24), "f4")), "expected array 0 as one row or more, got none."),
    "two arrays": (npy(*[numpy.zeros((1, 24), "f4")] * 2), "expected 1 arrays, got 2."),
    "order": (npy(numpy.zeros((2, 24), "f4", "F")), "expected an array in C order, got one in Fortran's."),
    "nothing": (b"", "got 0 bytes that begin otherwise."),
    "JSON": (b'{"inputs": [[1.0, 2.0]]}', "expected arrays in NumPy's .npy format, got 24 bytes that begin otherwise."),
    "truncated numbers": (npy(numpy.zeros((1, 24), "f4"))[:-1], "expected 96 bytes of numbers, got 95."),
    "truncated header": (npy(numpy.zeros((1, 24), "f4"))[:40], "got the end of the body."),
    "endless": (npy(numpy.zeros((1, 24), "f4")).replace(b"(1, 24)", b"(9999999999, 9999999999, 24)"), "got "),
    "no strides": (with_shape(f"(0, {10**17}, {10**17})"), "expected fewer numbers, got 96."),
    "no commas": (with_shape("(1 24)"), "expected a shape, got (1 24)."),
    "no tuple": (with_shape("(24)"), "expected a shape, got (24)."),
    "no end": (with_shape("(1, 24)").replace(b"}", b" "), "expected a .npy header with 'descr', "),
    "two shapes": (with_shape("(2, 12), 'shape': (1, 24)"), "expected a .npy header with 'descr', "),
    "version": (with_shape("(1, 24)").replace(b"Y\1", b"Y\7"), "expected .npy of version 1.0, 2.0 or 3.0, got 7.0."),
    "negative": (npy(numpy.zeros((1, 24), "f4")).replace(b"(1, 24)", b"(-1,24)"), "expected a shape, got (-1,24)."),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_gets_a_clear_answer(server, model, name):
    body, expected = BAD_BODIES[name]
    status, answer, _ = server.request("POST", "/predict", body)
    assert status == 400
    assert answer.decode().startswith("POST /predict: expected ")
    assert expected in answer.decode()
    assert_answers(server, model, rows(2))


HEALTH = b"GET /health HTTP/1.1\r\n"
POST = b"POST /predict HTTP/1.1\r\n"
CHUNKS = POST + b"Transfer-Encoding: chunked\r\n\r\n"
NO_ENCODING = "expected chunked as Transfer-Encoding"

BAD_REQUESTS = {
    "truncated body": (POST + b"Content-Length: 100\r\n\r\nabc", True, 400, "got 50 bytes"),
    "truncated head": (b"POST /predict HT", True, 400, "got 16 bytes"),
    "truncated chunk": (CHUNKS + b"64\r\nabc", True, 400, f"got {len(CHUNKS) + 7} bytes"),
    "no length": (POST + b"\r\n", False, 411, "got none."),
    "no number": (POST + b"Content-Length: -1\r\n\r\n", False, 400, "Invalid character in Content-Length."),
    "two lengths": (POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n", False, 400, "Content-Length."),
    "too large": (POST + b"Content-Length: 1048577\r\n\r\n", False, 413, "at most 1048576 bytes"),
    "too large to wait for": (
        POST + b"Expect: 100-continue\r\nContent-Length: 1048577\r\n\r\n",
        False,
        413,
        "at most 1048576 bytes",
    ),
    "larger still": (POST + b"Content-Length: 99999999999999999999\r\n\r\n", False, 400, "Content-Length overflow."),
    "long head": (b"GET / HTTP/1.1\r\nA: " + b"b" * 20000 + b"\r\n\r\n", False, 431, "at most 16384 bytes"),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", False, 400, "Invalid method"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\n", False, 505, "HTTP/2"),
    "HTTP/2 of other methods": (b"GET /health HTTP/2.0\r\n\r\n", False, 505, "expected a first line like"),
    "HTTP/0.9": (b"GET /health\nA: b\r\n\r\n", False, 505, "expected a first line like"),
    "HTTP/1.2": (b"GET /health HTTP/1.2\r\n\r\n", False, 400, "Invalid HTTP version."),
    "RTSP": (b"GET /health RTSP/1.0\r\n\r\n", False, 400, "expected a first line like"),
    "empty line": (b"\r\n" + HEALTH + b"\r\n", False, 400, "got an empty line."),
    "two spaces": (b"GET  /health HTTP/1.1\r\n\r\n", False, 400, "expected a first line like"),
    "two spaces behind": (b"GET /health  HTTP/1.1\r\n\r\n", False, 400, "expected a first line like"),
    "no name": (HEALTH + b"value\r\n\r\n", False, 400, "Invalid header token."),
    "length with a space": (POST + b"Content-Length : 3\r\n\r\nabc", False, 400, "Invalid header field char."),
    "chunks with a space": (HEALTH + b"Transfer-Encoding : chunked\r\n\r\n", False, 400, "Invalid header field char."),
    "folded line": (HEALTH + b"A: b\r\n c: d\r\n\r\n", False, 400, "Unexpected whitespace"),
    "line feed": (HEALTH + b"A: b\nTransfer-Encoding: chunked\r\n\r\n", False, 400, "Missing expected CR"),
    "carriage return": (HEALTH + b"A: b\rc\r\n\r\n", False, 400, "Missing expected LF"),
    "NUL": (HEALTH + b"A: \0\r\n\r\n", False, 400, "Invalid header value char."),
    "line feed in the target": (b"GET /\nA: HTTP/1.1\r\n\r\n", False, 505, "expected a first line like"),
    "space in the target": (b"GET /health /x HTTP/1.1\r\n\r\n", False, 400, "Expected HTTP/"),
    "no target": (b"GET  HTTP/1.1\r\n\r\n", False, 400, "url"),
    "no method": (b"G\0T /health HTTP/1.1\r\n\r\n", False, 400, "Invalid method"),
    "proxy": (b"CONNECT a:80 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", False, 501, "got CONNECT."),
    "two hosts": (HEALTH + b"Host: a\r\nHost: b\r\n\r\n", False, 400, "one Host, got several."),
    "expectation": (HEALTH + b"Expect: more\r\n\r\n", False, 417, "100-continue"),
    "length and chunks": (POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", False, 400, "can't be"),
    "chunks and length": (CHUNKS[:-2] + b"Content-Length: 3\r\n\r\n", False, 400, "can't be"),
    "chunks twice": (CHUNKS[:-2] + b"Transfer-Encoding: chunked\r\n\r\n", False, 400, "Transfer-Encoding"),
    "chunks of HTTP/1.0": (CHUNKS.replace(b"1.1", b"1.0") + b"0\r\n\r\n", False, 400, NO_ENCODING),
    "other encoding": (CHUNKS.replace(b"chunked", b"gzip"), False, 400, NO_ENCODING),
    "no encoding": (CHUNKS.replace(b"chunked", b""), False, 400, "Transfer-Encoding"),
    "two encodings": (CHUNKS.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n", False, 501, NO_ENCODING),
    "chunk of no size": (CHUNKS + b"\r\n", False, 400, "Invalid character in chunk size."),
    "chunk with a space": (CHUNKS + b"3 \r\nabc\r\n0\r\n\r\n", False, 400, "Invalid character in chunk size."),
    "chunk with a line feed": (CHUNKS + b"3\nabc\r\n0\r\n\r\n", False, 400, "Missing expected CR"),
    "chunk without an end": (CHUNKS + b"3\r\nabcd\r\n0\r\n\r\n", False, 400, "Expected LF after chunk data."),
    "chunk too large": (CHUNKS + b"100000\r\n", False, 413, "at most 1048576 bytes"),
    "chunk larger still": (CHUNKS + b"1\r\na\r\nffffffffffffffff\r\n", False, 413, "at most 1048576 bytes"),
    "chunks too large": (CHUNKS + b"ffff\r\n%b\r\n" % bytes(65535) * 16, False, 413, "at most 1048576 bytes"),
    "long extension": (CHUNKS + b"1;" + b"a" * 2000000, False, 413, "at most 1048576 bytes"),
    "long trailer": (CHUNKS + b"0\r\n" + b"a: b\r\n" * 300000, False, 413, "at most 1048576 bytes"),
    "length in the trailer": (CHUNKS + b"0\r\nContent-Length: 3\r\n\r\n", False, 400, "can't be"),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_a_bad_request_gets_a_clear_answer(server, model, name):
    data, end, status, text = BAD_REQUESTS[name]
    # What follows is no request: nobody knows where it begins.
    answer = server.send(data if end else data + b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", end)
    assert answer.startswith(f"HTTP/1.1 {status}")
    assert text in answer
    assert answer.count("HTTP/1.1 ") == 1
    assert_answers(server, model, rows(1))


def test_other_targets_and_methods(server):
    assert server.request("GET", "/health")[:2] == (200, b"ready\n")
    assert server.request("GET", "/nothing")[0] == 404
    status, _, headers = server.request("GET", "/predict")
    assert (status, headers["Allow"]) == (405, "POST")


def test_an_answer_to_head_has_no_body(server):
    answer = server.send(b"HEAD /predict HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
    head, _, rest = answer.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 405")
    assert rest.startswith("HTTP/1.1 200 OK\r\n")
    refusal = server.send(b"HEAD /health HTTP/1.1\r\nA: \0\r\n\r\n")
    assert refusal.startswith("HTTP/1.1 400")
    assert refusal.endswith("\r\n\r\n")


def test_who_asks_nothing_gets_no_answer(server):
    assert server.send(b"", end=True) == ""


def chunks(body, size, extension=b"", trailer=b""):
    pieces = [body[place : place + size] for place in range(0, len(body), size)]
    lines = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    return lines + b"0\r\n" + trailer + b"\r\n"


def test_a_body_may_come_in_chunks(server, model):
    x = rows(3)
    answers = []
    body = npy(x.numpy())
    ways = [(1,), (100,), (1 << 20,), (50, b';a=b;c="d"'), (70, b"", b"Content-Type: a\r\nConnection: close\r\n")]
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as client:
        for way in ways:
            client.sendall(CHUNKS.replace(b"chunked", b" Chunked ") + chunks(body, *way))
            response = http.client.HTTPResponse(client)
            response.begin()
            answers.append(array(response.read()))
            assert response.status == 200
    with torch.no_grad():
        torch.testing.assert_close(answers, [model[1](x)] * len(ways))


@pytest.mark.parametrize("chunk", [None, 3, 1 << 20])
def test_a_body_may_be_as_large_as_the_limit(server, chunk):
    size = {None: 1 << 20, 3: (1 << 20) // 8 * 3 - 3, 1 << 20: (1 << 20) - 14}[chunk]
    body = bytes(size)
    data = POST + b"Content-Length: %d\r\n\r\n" % size + body if chunk is None else CHUNKS + chunks(body, chunk)
    answer = server.send(data, end=True)
    assert f"got {size} bytes that begin otherwise" in answer, answer


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_have_a_bound_together(program, model, chunked):
    head = POST + b"Content-Length: 1048576\r\n"
    with (
        running(program, model[0], "--input", "float32:*x24", "--max-body-mb", 1) as server,
        contextlib.ExitStack() as clients,
    ):
        for _ in range(16):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS))
            client.sendall((CHUNKS[:-2] if chunked else head) + b"Expect: 100-continue\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 100")  # a length is counted by now
            if chunked:
                client.sendall(chunks(bytes(1000000), 50000)[:-5])
        deadline = time.monotonic() + WAIT_SECONDS
        while "expected fewer bytes of bodies at once" not in server.send(head + b"\r\n", end=True):
            assert chunked
            assert time.monotonic() < deadline


class Wide(nn.Module):
    """Its results are larger than what the system keeps of a connection."""

    def forward(self, x):
        return x.repeat(1, 12)


def test_a_body_counts_until_its_answer_is_sent(program, tmp_path):
    torch.jit.script(Wide().eval()).save(tmp_path / "model.pt")
    body = npy(numpy.zeros((10900, 24), "f4"))
    head = b"POST /predict HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
    with (
        running(program, tmp_path / "model.pt", "--input", "float32:*x24", "--max-body-mb", 1, "--grace", 0) as server,
        contextlib.ExitStack() as clients,
    ):
        for _ in range(16):
            client = clients.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(WAIT_SECONDS)
            client.connect(("127.0.0.1", server.port))
            client.sendall(head % len(body) + body)
        while server.metrics()["ipex_server_latency_seconds_count"] < 16:
            time.sleep(0.01)
        assert server.send(head % len(body) + body).startswith("HTTP/1.1 503")


@pytest.mark.parametrize("lines", ["Connection: TE, Close", "Connection: TE\r\nConnection: close"])
def test_close_may_be_one_of_several_options(server, lines):
    assert_closes(server, "HTTP/1.1", lines)


def test_a_connection_of_http_1_0_ends_with_its_request(server):
    assert_closes(server, "HTTP/1.0", "Connection: keep-alive")


def assert_closes(server, version, lines):
    get = b"GET /health HTTP/1.1\r\n\r\n"
    answer = server.send(f"GET /health {version}\r\n{lines}\r\n\r\n".encode() + get)
    assert answer.count("HTTP/1.1 200 OK") == 1
    assert "\r\nConnection: close\r\n" in answer


def test_100_continue_is_for_those_who_wait(server):
    head = b"POST /health HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    assert server.send(head + b"abc").startswith("HTTP/1.1 405")
    assert server.send(head.replace(b"100-continue", b"more") + b"abc").startswith("HTTP/1.1 405")
    waits = head.replace(b"1.0", b"1.1\r\nConnection: close").replace(b"100-c", b"100-C")
    assert server.send(waits + b"abc").startswith("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 405")


def test_curl_waits_for_100_continue(server, model):
    body = npy(numpy.zeros((1, 24), "f4"))
    head = f"POST /predict HTTP/1.1\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as client:
        client.sendall(head.encode())
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_two_requests_at_once_on_one_connection(server):
    get = b"GET /health HTTP/1.1\r\n\r\n"
    answer = server.send(get + get.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert answer.count("HTTP/1.1 200 OK") == 2


def test_clients_that_go_away(program, slow_model):
    body = npy(numpy.zeros((1, 256), "f4"))
    request = b"POST /predict HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with running(program, slow_model, "--input", "float32:*x256", "--max-batch", 1, "--threads", 1) as server:
        for _ in range(8):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(request)
        deadline = time.monotonic() + WAIT_SECONDS
        gone = answered = 0
        while gone + answered < 8:
            assert time.monotonic() < deadline
            metrics = server.metrics()
            gone = metrics.get('ipex_server_requests_total{code="499"}', 0)
            answered = metrics["ipex_server_latency_seconds_count"]
        assert gone > 0
        assert server.metrics()["ipex_server_queued_requests"] == 0
        # What nobody waits for was not computed.
        assert server.metrics()["ipex_server_batch_rows_count"] < 8
        assert server.predict(numpy.zeros((1, 256), "f4"))[0] == 200


class Several(nn.Module):
    """Two inputs of free size, results of several dtypes."""

    def forward(self, x, index):
        return x.to(torch.bfloat16), (x.sum(-1).double(), [index.remainder(7), index > 3])


def test_several_inputs_and_results(program, tmp_path):
    torch.jit.script(Several().eval()).save(tmp_path / "model.pt")
    options = ("--input", "float32:*x*", "--input", "int64:*", "--use-allocator", 1)
    with running(program, tmp_path / "model.pt", *options) as server:
        x, index = torch.randn(4, 3), torch.arange(4)
        status, body, _ = server.predict(x.numpy(), index.numpy())
        assert status == 200, body
        file = io.BytesIO(body)
        found = [torch.from_numpy(numpy.load(file)) for _ in range(4)]
        torch.testing.assert_close(found, [x.bfloat16().float(), x.sum(-1).double(), index % 7, index > 3])
        status, body, _ = server.predict(x.numpy(), index[:3].numpy())
        assert (status, body.decode()) == (
            400,
            "POST /predict: expected array 1 as 4 rows, as array 0 has, got 3.\n",
        )


class Picky(nn.Module):
    """Refuses some values."""

    def forward(self, index):
        return torch.embedding(torch.ones(8, 2), index)


def test_a_request_that_the_model_refuses_hurts_no_other(program, tmp_path):
    torch.jit.script(Picky().eval()).save(tmp_path / "model.pt")
    options = ("--input", "int64:*x1", "--max-delay-us", 5000000, "--max-batch", 4)
    pool = concurrent.futures.ThreadPoolExecutor(4)
    with running(program, tmp_path / "model.pt", *options) as server, pool:
        values = [1, 2, 100, 3]
        answers = list(pool.map(lambda value: server.predict(numpy.full((1, 1), value)), values))
        assert [status for status, _, _ in answers] == [200, 200, 500, 200]
        assert answers[2][1].startswith(b"server: the model failed: ")
        metrics = server.metrics()
        assert metrics['ipex_server_batch_rows_bucket{le="1"}'] == 4, "each ran by itself"
        assert metrics["ipex_server_batch_rows_count"] == 5, "after a batch of all"


def starts(program, *arguments):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(TORCH / "lib")}
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS)


def test_what_can_not_be_served_is_said_at_the_start(program, model, tmp_path):
    done = starts(program, "nothing.pt", "--input", "float32:*x24")
    assert done.returncode == 1
    assert "expected a saved TorchScript model at 'nothing.pt'" in done.stderr
    done = starts(program, model[0], "--input", "float32:1x24")
    assert done.returncode == 2
    assert "expected a dtype and sizes like float32:*x3x224x224, got 'float32:1x24'" in done.stderr
    done = starts(program, model[0], "--input", "float32:*x23")
    assert done.returncode == 1
    assert "the model failed: " in done.stderr
    torch.jit.trace(lambda x: x.sum(0), torch.ones(2, 24)).save(str(tmp_path / "sum.pt"))
    done = starts(program, tmp_path / "sum.pt", "--input", "float32:*x24")
    assert done.returncode == 1
    assert "expected a model that returns a row for each of its 1 rows" in done.stderr
    assert starts(program).returncode == 2
