"""What a strict reader of HTTP/1.1 (RFC 9112) sees in the bytes of a connection, and which answers it allows.

Written apart from the server's own parser. Where readers may differ about the end of a request, it is refused and the
connection ends, so that nobody takes the rest for another request.
"""

from __future__ import annotations

import io
import math
import re
import threading
import warnings
from dataclasses import dataclass, field

import numpy

HEAD_BYTES = 16 << 10
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
METHODS = rb"GET|HEAD|POST|PUT|DELETE|OPTIONS|TRACE"  # of RFC 9110; CONNECT is for proxies
TARGET = rb"[/*][\x21-\x7e]*|[A-Za-z]+://[\w.:-]+(?:/[\x21-\x7e]*)?"
FIRST_LINE = re.compile(rb"(%b) (%b) (HTTP/1\.[01])" % (METHODS, TARGET))
HEADER = re.compile(rb"(%b):([\t\x20-\x7e\x80-\xff]*)" % TOKEN)
QUOTED = rb'"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
# An extension may lack its name or value: whatever it is, it ends with the line.
CHUNK_HEAD = re.compile(rb"([0-9A-Fa-f]+)(?:;+%b(?:=(?:%b|%b)?)?)*\r\n" % (TOKEN, TOKEN, QUOTED))
REFUSALS = frozenset({400, 408, 411, 413, 417, 431, 501, 505})
FEATURES = 24
# NumPy parses the header as Python, at which some releases of 3.11 fail in two threads at once (SystemError).
PARSING = threading.Lock()


@dataclass
class Expected:
    """What may become of one request."""

    statuses: frozenset[int]
    method: bytes = b""
    body: bytes | None = None  # of an answer of 200, where it is known
    inputs: numpy.ndarray | None = None  # of the model, where it is to be called
    continues: bool = False  # may be told to go on with its body
    is_last: bool = False  # nothing that follows may be answered
    is_refusal: bool = False


@dataclass
class Seen:
    """What the bytes of a connection hold."""

    requests: list[Expected] = field(default_factory=list)
    is_cut: bool = False  # the last request waits for more bytes


def refused() -> Expected:
    return Expected(REFUSALS, is_last=True, is_refusal=True)


def read_requests(data: bytes, most_body: int) -> Seen:
    seen = Seen()
    while data:
        end = data.find(b"\r\n\r\n") + 4
        if end < 4 or end > HEAD_BYTES:
            seen.requests.append(refused())
            seen.is_cut = end < 4 and len(data) <= HEAD_BYTES
            return seen
        request, size = _read_head(data[: end - 4], most_body)
        data = data[end:]
        body: bytes | None = None
        if request is not None:
            body, data, seen.is_cut = _read_chunks(data, most_body) if size is None else _read_sized(data, size)
        if request is None or body is None:
            seen.requests.append(refused())
            seen.requests[-1].continues = request is not None and request.continues
            return seen
        if request.inputs is not None:
            _add_inputs(request, body)
        seen.requests.append(request)
        if request.is_last:
            return seen
    return seen


def _read_sized(data: bytes, size: int) -> tuple[bytes | None, bytes, bool]:
    """The body, what follows it, and whether more must come. There is no body where it is not whole."""
    return (None, b"", True) if size > len(data) else (data[:size], data[size:], False)


def _read_chunks(data: bytes, most_body: int) -> tuple[bytes | None, bytes, bool]:
    """The same where chunks say how much comes. All their bytes count, with those of their heads and of the trailer."""
    body, place = b"", 0
    while True:
        head = CHUNK_HEAD.match(data, place)
        size = int(head[1], 16) if head else 0
        if head is None or head.end() + size > most_body:
            return None, b"", head is None and data.find(b"\r\n", place) < 0
        place = head.end() + size
        if size == 0:
            break
        body += data[head.end() : place]
        if not data.startswith(b"\r\n", place):
            return None, b"", len(data) < place + 2
        place += 2
    end = place if data.startswith(b"\r\n", place) else data.find(b"\r\n\r\n", place) + 2
    if end < 2:
        return None, b"", True
    names = [HEADER.fullmatch(line) for line in data[place:end].split(b"\r\n")[:-1]]
    if any(not name or name[1].lower() in (b"content-length", b"transfer-encoding") for name in names):
        return None, b"", False
    return (None, b"", False) if end + 2 > most_body else (body, data[end + 2 :], False)


def _read_head(head: bytes, most_body: int) -> tuple[Expected | None, int | None]:
    """Return nothing where it is not well formed, and no size where the body comes in chunks."""
    first, *lines = head.split(b"\r\n")
    found = FIRST_LINE.fullmatch(first)
    if not found:
        return None, 0
    method, target, version = found.groups()
    headers: dict[bytes, list[bytes]] = {}
    for line in lines:
        header = HEADER.fullmatch(line)
        if not header:
            return None, 0
        headers.setdefault(header[1].lower(), []).append(header[2].strip(b" \t"))
    lengths = headers.get(b"content-length", [])
    encodings = [value.lower() for value in headers.get(b"transfer-encoding", [])]
    expects = b", ".join(headers.get(b"expect", [])).lower()
    if (
        (encodings and (encodings != [b"chunked"] or lengths or version == b"HTTP/1.0"))
        or len(lengths) > 1
        or b"," in b",".join(headers.get(b"host", []))
        or not all(re.fullmatch(rb"[0-9]+", length) and int(length) <= most_body for length in lengths)
        or (not lengths and not encodings and method in (b"POST", b"PUT"))
        or (version == b"HTTP/1.1" and expects not in (b"", b"100-continue"))
    ):
        return None, 0
    request = _answer_to(method, target)
    request.method = method
    request.continues = bool(expects) and version == b"HTTP/1.1"
    request.is_last = version == b"HTTP/1.0" or b"close" in _listed(headers, b"connection")
    if encodings:
        return request, None
    return request, int(lengths[0]) if lengths else 0


def _listed(headers: dict[bytes, list[bytes]], name: bytes) -> list[bytes]:
    parts = [part.strip(b" \t").lower() for value in headers.get(name, []) for part in value.split(b",")]
    return [part for part in parts if part]


def _answer_to(method: bytes, target: bytes) -> Expected:
    wanted = {b"/predict": b"POST", b"/health": b"GET", b"/metrics": b"GET"}.get(target)
    if wanted is None:
        return Expected(frozenset({404}))
    if method != wanted:
        return Expected(frozenset({405}))
    if target == b"/predict":
        return Expected(frozenset({200, 400}), inputs=numpy.empty(0))
    return Expected(frozenset({200}), body=b"ready\n" if target == b"/health" else None)


def _add_inputs(request: Expected, body: bytes) -> None:
    request.inputs = None
    array, is_usual = read_npy(body)
    if array is None or array.dtype != numpy.dtype("<f4") or array.shape[1:] != (FEATURES,) or len(array) == 0:
        request.statuses = frozenset({400})
    else:
        request.inputs = array
        request.statuses = frozenset({200}) if is_usual else frozenset({200, 400})


def read_npy(body: bytes) -> tuple[numpy.ndarray | None, bool]:
    """The one array that these bytes are to NumPy, and whether they are as numpy.save writes them."""
    file = io.BytesIO(body)
    try:
        with PARSING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            version = numpy.lib.format.read_magic(file)
            if version not in ((1, 0), (2, 0), (3, 0)):
                return None, False
            read = (
                numpy.lib.format.read_array_header_1_0 if version == (1, 0) else numpy.lib.format.read_array_header_2_0
            )
            shape, in_fortran_order, dtype = read(file, max_header_size=1 << 24)
    except Exception:  # whatever Python says of a text that is none of its own
        return None, False
    numbers = body[file.tell() :]
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(numbers) or dtype.hasobject:
        return None, False
    array = numpy.frombuffer(numbers, dtype).reshape(shape, order="F" if in_fortran_order else "C")
    written = io.BytesIO()
    numpy.save(written, array)
    return array, written.getvalue() == body


@dataclass
class Answer:
    """One response, as it came."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class NotHttp(Exception):
    """The server sent something else than whole answers."""


def read_answers(data: bytes, requests: list[Expected]) -> tuple[list[Answer], bool]:
    """The whole answers in these bytes, and whether a part of another follows. Raises NotHttp."""
    answers: list[Answer] = []
    was_continued = False
    while data:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return answers, True
        request = requests[len(answers)] if len(answers) < len(requests) else refused()
        first, *lines = data[:end].split(b"\r\n")
        found = re.fullmatch(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [\x20-\x7e]+", first)
        if not found:
            raise NotHttp(f"a first line {first[:60]!r}")
        status, headers = int(found[1]), {}
        for line in lines:
            header = HEADER.fullmatch(line)
            if not header or header[1].lower() in headers:
                raise NotHttp(f"a header {line[:60]!r}")
            headers[header[1].lower()] = header[2].strip()
        data = data[end + 4 :]
        if status == 100:
            if not request.continues or was_continued or headers:
                raise NotHttp("100 Continue that nobody waits for")
            was_continued = True
            continue
        length = headers.get(b"content-length", b"")
        if not re.fullmatch(rb"[0-9]+", length):
            raise NotHttp(f"a Content-Length {length!r}")
        # Where a request is refused before it is read, the server may not know that it is HEAD.
        has_body = request.method != b"HEAD" and not (request.is_refusal and not data)
        if has_body and len(data) < int(length):
            return answers, True
        size = int(length) if has_body else 0
        answers.append(Answer(status, headers, data[:size]))
        data, was_continued = data[size:], False
    return answers, False
