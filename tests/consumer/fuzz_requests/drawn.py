"""Requests that are drawn, most of them damaged, and how their bytes are sent."""

from __future__ import annotations

import random
import re
import struct
from dataclasses import dataclass

import numpy

from consumer.fuzz_requests.reading import FEATURES
from consumer.server_process import npy

METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"PRI", b"get", b"GE T", b"")
TARGETS = (
    *(b"/predict", b"/health", b"/metrics", b"/", b"*", b"//health", b"/health?a=b", b"http://a/health", b"/a b"),
    *(b"",),
)
ODD_TARGETS = (
    *(b"/\x00", b"/\xff\xfe", b"/%00%0d%0a", b"/a\tb", b"/h\rX: y", b"/h\nTransfer-Encoding: chunked", b"/" * 9000),
)
VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/1.", b"HTTP/11", b"http/1.1", b"HTTP/1.1 ", b"")
VERSIONS = (*VERSIONS, b"RTSP/1.0", b"ICE/1.0", b"HTTP/0.9")
LENGTHS = (
    *(b"+%d", b"-%d", b"0x%x", b"%d ", b"\t%d", b"0%d", b"%d, %d", b"%d,", b"%d.0", b"%de0", b"'%d'", b"%d\x00"),
    *(b"\x0b%d", b"%d\r", b"\n%d", b"%d;a=b", b"\xb2%d", b"1_%d", b"", b"99999999999999999999999"),
    *(b"18446744073709551615", b"-1", b"1048577", b"9223372036854775808", b"0" * 300 + b"%d", b"0" * 20000 + b"%d"),
    *(b"%d %d", b"NaN"),
)
ENCODINGS = (
    *(b"Chunked", b"identity", b"gzip, chunked", b"chunked, identity", b" chunked", b"\tchunked", b"chunked "),
    *(b"chunked, chunked", b",chunked", b"chunked,", b"chunked\r\nTransfer-Encoding: chunked", b"chunked\xa0"),
    *(b"gzip\r\nTransfer-Encoding: chunked", b"chunked\r\nTransfer-Encoding:"),
    *(b"\x0bchunked", b"chunked;a=b", b'"chunked"', b"xchunked", b"", b"chunked\x00", b"chun\r\n ked"),
)
CHUNK_SIZES = (
    *(b"0x%x", b"-%x", b"+%x", b"%x ", b" %x", b"\t%x", b"%x\t", b"%x\n", b"%x\r", b"\n%x", b"%x,", b"%x\x00", b"%x_0"),
    *(b"ffffffffffffffff%x", b"fffffffffffffff0", b"7fffffffffffffff", b"100000", b"", b"g", b"0" * 40 + b"%x", b"%X"),
    *(
        b"%x;a=b",
        b"%x;a",
        b"%x;a=b;c",
        b'%x;a="b c"',
        b'%x;a="\\""',
        b"%x;",
        b"%x;;a",
        b"%x;a=",
        b"%x; a=b",
        b"%x ;a=b",
    ),
    *(b'%x;a="\r\n"', b'%x;a="\\\r\n"', b'%x;a="b', b"%x;a\nb", b"%x;a\rb", b"%x;a=\x00", b"%x;\xff", b'%x;a="\xff"'),
    *(b"%x;a=" + b"b" * 70000,),
)
CHUNK_ENDS = (b"\n", b"\r", b"", b"\r\r\n", b"\n\r\n", b" \r\n", b"\r\n\r\n", b"X\r\n", b"\rX")
TRAILERS = (
    *(b"X: a\r\n", b"X:\r\nY: \t\r\n", b"Connection: close\r\n", b"Host: a\r\nHost: b\r\n", b"Expect: something\r\n"),
    *(
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b" folded\r\n",
        b"X: a\r\n folded\r\n",
        b"X : a\r\n",
    ),
    *(b"X\r\n", b"X: a\n", b"X: a\r", b": a\r\n", b"X: \x00\r\n", b"\n", b"\r", b"Y: 1\r\n" * 9000),
)
HEADERS = (
    *(b"Host: a", b"Accept: */*", b"Connection: keep-alive", b"Connection: close", b"Connection: Close, TE", b"X:"),
    *(b"X: \t", b"Connection: keep-alive, close", b"Connection: keep-alive\r\nConnection: close"),
    *(
        b"Host: a\r\nHost: b",
        b"A: \xff\x80",
        b"Expect: 100-continue",
        b"Expect: 100-Continue",
        b"Expect: something",
        b"Expect: , 100-continue,",
        b"Expect:",
    ),
    *(b"Upgrade: h2c", b"TE: trailers", b"Trailer: A", b"X: a\r\n folded", b"X: a\r\n\tContent-Length: 3", b" X: a"),
    *(b"X : a", b"X\t: a", b": a", b"X", b"X: a\x00b", b"X\x00: a", b"X: a\rb", b"X: a\nb"),
    *(b"X: a\nTransfer-Encoding: chunked", b"X: a\nContent-Length: 4", b"X: a\x0b\x7f", b"\xc3\xa9: a"),
    *(b"Content_Length: 4", b"Content-Length\x00: 4", b"Content-Length : 4", b"Transfer-Encoding : chunked"),
    *(b"(X): a", b"X: \x01", b"X-HTTP-Method-Override: GET", b"X: " + b"a" * 8000, b"X: " + b"a" * 17000),
    *(b"Y: 1\r\n" * 1500 + b"Y: 1",),
)
SECOND = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
EDGE_SIZES = (0, 1, -1, 2, 23, 25, 2**31, 2**32 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**18 - 1, 10**30)


# What may stand in the header of an array, and what else is written there.
OTHERS_IN_NPY = {
    b"<f4": (b">f4", b"<f8", b"<c8", b"|O", b"<U9", b"<M8[s]", b"f4", b"|b1", b"<i4", b"", b"<f4'", b"|V4"),
    b"False": (b"True", b"0", b"None", b"", b"false", b"False, 'a': 1", b"False or 1"),
    b"'shape'": (b"'Shape'", b"shape", b"'descr'", b"b'shape'", b"'shape': (1,), 'shape'", b'"shape"'),
    b", 24)": (
        b" 24)",
        b",, 24)",
        b", 24",
        b", 24]",
        b", (24)",
        b", +24)",
        b", 2_4)",
        b", 024)",
        b", 24, )",
        b", 24,,)",
    ),
    b"{": (b"", b"[", b"{{", b"x{", b"{'a': 1, ", b"\n{", b"dict({"),
    b"}": (b"", b"]", b"}}", b"} x", b", 'a': {}}", b"}\x00", b"}#"),
}


@dataclass
class Delivery:
    """How bytes are sent."""

    pieces: list[bytes]
    pause: float = 0  # seconds between pieces
    ends: bool = False  # says at once that no more will come
    leaves: str = ""  # "closes" or "resets" without reading


def draw_case(draw: random.Random) -> tuple[str, bytes]:
    """The kind of case, and all bytes of its connection."""
    kind = draw.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
    return kind, KINDS[kind][1](draw)


def draw_delivery(data: bytes, draw: random.Random) -> Delivery:
    chance = draw.random()
    leaves = draw.choice(("closes", "resets")) if chance < 0.06 else ""
    if chance < 0.16 and data:
        cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.randrange(1, 13)))
        if len(data) < 40:
            cuts = list(range(1, len(data)))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)]) if a < b]
        return Delivery(pieces, draw.choice((0, 0.001, 0.004)), leaves=leaves)
    return Delivery([data], ends=chance > 0.9, leaves=leaves)


def array(draw: random.Random) -> bytes:
    rows = draw.choice((1, 1, 1, 2, 3, 9))
    return npy(numpy.array([[draw.uniform(-2, 2) for _ in range(FEATURES)] for _ in range(rows)], "f4"))


def good(draw: random.Random) -> bytes:
    if draw.random() < 0.5:
        return draw.choice((SECOND, b"GET /metrics HTTP/1.1\r\nAccept: */*\r\n\r\n", b"HEAD /health HTTP/1.1\r\n\r\n"))
    return post(array(draw))


def post(body: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join((b"POST /predict HTTP/1.1", b"Content-Length: %d" % len(body), *headers, b"", body))


def first_line(draw: random.Random) -> bytes:
    """One part of a first line is another, and what follows would be a request of its own."""
    parts = [draw.choice(METHODS[:3]), draw.choice(TARGETS[:3]), b"HTTP/1.1"]
    place = draw.randrange(3)
    parts[place : place + 1] = draw.choice(([], [draw.choice((*METHODS, *TARGETS, *ODD_TARGETS, *VERSIONS))]))
    space = draw.choices((b" ", b"  ", b"\t", b" \r", b""), (20, 1, 1, 1, 1))[0]
    end = draw.choices((b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r\n"), (20, 1, 1, 1, 1))[0]
    return draw.choice((b"", b"", b"", b"\r\n", b"\n")) + space.join(parts) + end + b"Host: a\r\n\r\n" + SECOND


def headers(draw: random.Random) -> bytes:
    """Odd headers, and one or two requests behind them."""
    lines = draw.sample(HEADERS, draw.choice((1, 1, 2, 4)))
    end = draw.choices((b"\r\n", b"\n", b"\r"), (20, 1, 1))[0]
    if draw.random() < 0.5:
        body = array(draw)
        lines.insert(draw.randrange(len(lines) + 1), b"Content-Length: %d" % len(body))
        return end.join((b"POST /predict HTTP/1.1", *lines)) + b"\r\n\r\n" + body + SECOND
    return end.join((draw.choice((b"GET", b"HEAD")) + b" /health HTTP/1.1", *lines)) + b"\r\n\r\n" + SECOND


def framing(draw: random.Random) -> bytes:
    """Two readers see two ends of the first request. One of them takes the rest for another one."""
    body = draw.choice((array(draw), b"", b"0\r\n\r\n", SECOND, chunks(array(draw), draw)))
    length = b"%d" if draw.random() < 0.5 else draw.choice(LENGTHS)
    number = draw.choice((len(body), len(body), 0, 3, len(body) + len(SECOND), len(body) - 1))
    written = length % ((number,) * length.count(b"%")) if b"%" in length else length
    name = draw.choice((b"Content-Length", b"Content-Length", b"content-length", b"CONTENT-LENGTH", b"Content-Length "))
    space = draw.choice((b" ", b"", b"\t", b"  "))
    lines = [name + b":" + space + written]
    if draw.random() < 0.4:
        coding = draw.choice(
            (b"Transfer-Encoding", b"transfer-encoding", b"Transfer-Encoding ", b"Transfer-Encoding\x00")
        )
        lines.append(coding + b": " + draw.choice((b"chunked", draw.choice(ENCODINGS))))
    if draw.random() < 0.3:
        lines.append(b"Content-Length: %d" % draw.choice((len(body), 0, 5)))
    if draw.random() < 0.1:
        lines.append(b"Connection: Content-Length")
    draw.shuffle(lines)
    method = draw.choice((b"POST /predict", b"POST /predict", b"GET /health", b"HEAD /health", b"PUT /x", b"DELETE /x"))
    version = draw.choices((b"HTTP/1.1", b"HTTP/1.0"), (8, 1))[0]
    return method + b" " + version + b"\r\n" + b"\r\n".join(lines) + b"\r\n\r\n" + body + SECOND


def chunks(body: bytes, draw: random.Random) -> bytes:
    """A body in chunks. In half of them one size, one end, or the trailer is damaged."""
    cuts = sorted(draw.randrange(len(body) + 1) for _ in range(draw.choice((0, 1, 1, 3, 40))))
    pieces = [piece for a, b in zip([0, *cuts], [*cuts, len(body)]) if (piece := body[a:b])] + [b""]
    damage, place = draw.choice(("", "", "", "size", "end", "trailer")), draw.randrange(len(pieces))
    data = []
    for i, piece in enumerate(pieces):
        size = draw.choice(CHUNK_SIZES) if damage == "size" and i == place else b"%x"
        head = size % len(piece) if b"%" in size else size
        ends = [
            draw.choice((b"\r\n", draw.choice(CHUNK_ENDS))) if damage == "end" and i == place else b"\r\n" for _ in "ab"
        ]
        trailer = draw.choice(TRAILERS) if damage == "trailer" and not piece else b""
        data += [head, ends[0], piece, trailer, ends[1]]
    return b"".join(data)


def chunked(draw: random.Random) -> bytes:
    coding = draw.choice((b"chunked", b"chunked", b"chunked", draw.choice(ENCODINGS)))
    lines = [b"Transfer-Encoding: " + coding, *draw.sample(HEADERS, draw.choice((0, 0, 0, 1)))]
    version = draw.choices((b"HTTP/1.1", b"HTTP/1.0"), (9, 1))[0]
    body = array(draw) if draw.random() < 0.9 else damaged_npy(array(draw), draw)
    first = draw.choices((b"POST /predict", b"GET /health", b"HEAD /health", b"CONNECT a:80"), (9, 1, 1, 1))[0]
    return b"\r\n".join((first + b" " + version, *lines, b"", b"")) + chunks(body, draw) + SECOND


def body_of(draw: random.Random) -> bytes:
    return post(damaged_npy(array(draw), draw)) + draw.choice((b"", SECOND))


def damaged_npy(data: bytes, draw: random.Random) -> bytes:
    """An array whose header says something else, or with bytes changed, dropped or doubled."""
    end = 10 + struct.unpack("<H", data[8:10])[0]
    text, numbers = data[10:end], data[end:]
    way = draw.randrange(9)
    if way <= 2:
        if way == 0:
            shape = draw.choice((b"(%b, 24)", b"(1, %b)", b"(0, %b, %b)", b"(%b,)"))
            text = re.sub(rb"\(.*\)", shape.replace(b"%b", b"%d" % draw.choice(EDGE_SIZES)), text)
        else:
            old = draw.choice(list(OTHERS_IN_NPY))
            text = text.replace(old, draw.choice(OTHERS_IN_NPY[old]), 1)
        return data[:8] + struct.pack("<H", len(text)) + text + numbers
    if way == 3:
        return data[: draw.randrange(len(data))]
    if way == 4:
        return data + draw.choice((b"\x00", data, data[:7], b"\r\n"))
    if way == 5:  # version and length of the header
        place = draw.randrange(6, 10)
        return data[:place] + bytes((draw.choice((0, 1, 2, 3, 4, draw.randrange(256))),)) + data[place + 1 :]
    if way == 6:
        return draw.choice((b"", b"null", b'{"inputs": [[1, 2]]}', b"PK\x03\x04", b"\x93NUMPY", data[:8] + b"\xff\xff"))
    if way == 7:
        place = end + draw.randrange(len(numbers) - 4)
        return (
            data[:place]
            + draw.choice((b"\xff\xff\xff\xff", b"\x00\x00\xc0\x7f", b"\xff\xff\x7f\x7f"))
            + data[place + 4 :]
        )
    return flipped(data, draw, end)


def flipped(data: bytes, draw: random.Random, among: int) -> bytes:
    """Some bytes of the first are others, gone or doubled."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        place = draw.randrange(min(len(found), among))
        new = draw.choice(
            (b"", bytes((draw.randrange(256),)), draw.choice((b"\x00", b"\r", b"\n", b"\r\n", b" ", b":", b"\t")))
        )
        if draw.random() < 0.2:
            new = found[place : place + 9] * 2
        found[place : place + 1] = new
    return bytes(found)


def changed(draw: random.Random) -> bytes:
    """A good request in whose head bytes are changed, with another one behind it."""
    request = good(draw)
    return flipped(request, draw, request.find(b"\r\n\r\n") + 4) + SECOND


def cut(draw: random.Random) -> bytes:
    data = good(draw) + draw.choice((b"", good(draw)))
    return data[: draw.randrange(len(data))]


def pipelined(draw: random.Random) -> bytes:
    """Requests one after another, the last of which may be damaged."""
    requests = [good(draw) for _ in range(draw.choice((1, 2, 3, 9)))]
    return b"".join(requests) + draw.choice((b"", b"", headers(draw), framing(draw), first_line(draw)))


def noise(draw: random.Random) -> bytes:
    size = draw.choice((0, 1, 3, 40, 700, 16384, 16389, 40000))
    among = draw.choice((bytes(range(256)), b"\r\n", b"\r\n \t:AGET/HP1.0", b"\x16\x03\x01\x00"))
    return draw.choice((b"", b"GET /health HTTP/1.1\r\n")) + bytes(draw.choices(among, k=size))


KINDS = {
    "first line": (3, first_line),
    "headers": (4, headers),
    "framing": (4, framing),
    "chunked": (4, chunked),
    "body": (4, body_of),
    "changed": (4, changed),
    "cut": (2, cut),
    "pipelined": (2, pipelined),
    "noise": (1, noise),
}
