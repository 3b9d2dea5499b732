"""A sample of what `make fuzz-requests` runs in full, and that servers with a fault are found out."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from consumer.fuzz_requests.batches import Run
from consumer.fuzz_requests.drawn import KINDS, draw_case
from consumer.fuzz_requests.reading import NotHttp, read_answers, read_requests, refused
from consumer.fuzz_requests.watched import perceptron

STAND_IN = Path(__file__).parent / "stand_in.py"
RUN = [sys.executable, "-W", "ignore", Path(__file__).parent / "run.py"]


def test_damaged_requests_are_refused_and_the_server_goes_on(program):
    seed = os.environ.get("IPEX_FUZZ_SEED", "1")
    options = ["--server", program, "--cases", "800", "--ends", "2", "--seed", seed]
    done = subprocess.run([*RUN, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "800 cases" in done.stdout


FAULTS = {
    "line feeds": "more answers than requests",
    "lengths": "more answers than requests",
    "chunks": "more answers than requests",
    "spaces": "more answers than requests",
    "goes on": "more answers than requests",
    "bodies": "body: 200 as answer 0, expected one of [400]",
    "numbers": "a wrong result",
    "answers": "an answer that is not HTTP",
    "ends": "the server ended with 3",
    "hangs": "no answer, or no end of the connection",
    "files": "threads and files: ",
    "memory": " MB of memory, at first ",
    "connections": "more connections than the limit",
    "status": "the end at SIGTERM with 1",
    "cuts": "at SIGTERM: a part of an answer",
    "no end": "no end at SIGTERM",
}


@pytest.mark.parametrize("fault", ["none", *FAULTS])
def test_a_server_with_a_fault_is_found_out(tmp_path, fault):
    draw = numpy.random.default_rng(0)
    weights = [draw.standard_normal(shape, "f4") for shape in ((64, 24), (64,), (5, 64), (5,))]
    numpy.savez(tmp_path / "weights.npz", *weights)
    command = [sys.executable, STAND_IN, fault, tmp_path / "weights.npz"]
    for seed in range(10):  # until it is found: a hundred cases may have none of a kind
        run = Run(command, perceptron(weights), seed=seed, limit=0.5 if fault in FAULTS else 20)
        run.run_batches(100)
        if fault in ("none", "cuts"):
            run.run_ends(1)
        if fault == "none" or any(FAULTS[fault] in text for text in run.wrong):
            break
    else:
        pytest.fail(f"not found: {dict(run.wrong)}")
    assert fault in FAULTS or not run.wrong


def seen(data):
    """The statuses that requests may get, refused ones as None."""
    return [None if request.is_refusal else set(request.statuses) for request in read_requests(data, 100).requests]


def test_the_strict_reader():
    get, post = b"GET /health HTTP/1.1\r\n\r\n", b"POST /predict HTTP/1.1\r\n"
    assert seen(b"") == []
    assert seen(get + get) == [{200}, {200}]
    assert seen(get[:-1]) == [None]
    assert seen(get.replace(b" HTTP/1.1", b" HTTP/1.0") + get) == [{200}]
    assert seen(get.replace(b".1", b".1\r\nConnection: a, Close") + get) == [{200}]
    assert seen(post + b"Content-Length: 3\r\n\r\nabc" + get) == [{400}, {200}]
    assert seen(post + b"Content-Length: 3, 3\r\n\r\nabc" + get) == [None]
    assert seen(post + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc" + get) == [None]
    assert seen(post + b"Content-Length: 101\r\n\r\n" + get) == [None]
    chunks = post + b"Transfer-Encoding: chunked\r\n\r\n"
    assert seen(chunks + b"0\r\n\r\n" + get) == [{400}, {200}]
    assert seen(chunks + b'3;a="b"\r\nabc\r\n0\r\nA: b\r\n\r\n' + get) == [{400}, {200}]
    for bad in (b"3\nabc\r\n0\r\n\r\n", b"3 \r\nabc\r\n0\r\n\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"0\r\n A: b\r\n\r\n"):
        assert seen(chunks + bad + get) == [None]
    assert seen(chunks + b"5a\r\n" + bytes(90) + b"\r\n0\r\n\r\n" + get) == [None]  # of 101 bytes in all
    assert seen(chunks.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n" + get) == [None]
    assert seen(chunks[:-2] + b"Content-Length: 3\r\n\r\n0\r\n\r\n" + get) == [None]
    assert seen(get.replace(b".1", b".1\r\nA: b\nC: d") + get) == [None]


def test_what_is_no_answer_is_seen():
    request = [refused()]
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno"
    assert [found.body for found in read_answers(answer, request)[0]] == [b"no"]
    assert read_answers(answer[:-1], request) == ([], True)
    assert len(read_answers(answer + answer, request)[0]) == 2
    for wrong in (answer[1:], answer.replace(b"2\r", b"x\r"), answer + b"no\r\n\r\n", answer.replace(b" 400", b"")):
        with pytest.raises(NotHttp):
            read_answers(wrong, request)


def test_every_kind_has_requests_of_both_kinds():
    """Damage of which nothing is left to answer, or to refuse, would find little."""
    found = {kind: set() for kind in KINDS}
    for i in range(2500):
        kind, data = draw_case(random.Random(i))
        found[kind] |= {request.is_refusal for request in read_requests(data, 1 << 20).requests}
    both = {kind for kind, kinds in found.items() if kinds == {True, False}}
    assert both == set(KINDS) - {"body"}
