"""An HTTP server for one language model: /v1/models, /v1/chat/completions, /v1/completions, /health.

Bounded in all it takes: connections, bytes of a request, texts that wait, memory for what others may take over, and
seconds that a client may take to send a request or to take in a part of the answer.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .._version import __version__
from ._openai import Answer, BadRequest, error_body, read
from ._texts import PREFIX_CACHE_MIB, Busy, Texts


@dataclass(frozen=True)
class Limits:
    """What the server takes at most."""

    connections: int = 64
    request_bytes: int = 1 << 20
    seconds: float = 30.0  # to send a request, to take in a part of an answer, and to finish when the server ends


class Server(ThreadingHTTPServer):
    """Serves a model under a name, until `stop`."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        model: Any,
        tokenizer: Any,
        name: str,
        together: int = 8,
        waiting: int = 64,
        limits: Limits = Limits(),
        prefix_cache_mib: int = PREFIX_CACHE_MIB,
    ) -> None:
        self.name, self.tokenizer, self.limits = name, tokenizer, limits
        self.texts = Texts(model, together, waiting, prefix_cache_mib)
        self.ends = _ends(model, tokenizer)
        self.longest = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
        self.began = int(time.time())
        self._lock = threading.Lock()
        self._deadlines: dict[socket.socket, float] = {}  # of those that have a request to send
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin with a connection, or refuse it."""
        with self._lock:
            is_full = len(self._open) >= self.limits.connections
            if not is_full:
                self._open.add(request)
        if is_full:
            request.settimeout(1)
            with contextlib.suppress(OSError):
                request.sendall(_REFUSED)
            return self.shutdown_request(request)
        return super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock:
            self._open.discard(request)
            self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def expects_a_request(self, connection: socket.socket, does: bool) -> None:
        """Say that a client is to send a request by now, or has."""
        with self._lock:
            if does:
                self._deadlines[connection] = time.monotonic() + self.limits.seconds
            else:
                self._deadlines.pop(connection, None)

    def service_actions(self) -> None:
        """End connections whose request does not come. Called again and again."""
        with self._lock:
            late = [one for one, deadline in self._deadlines.items() if deadline < time.monotonic()]
        for connection in late:
            _end(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that go."""

    def stop(self) -> None:
        """Take nothing new, finish what was begun, and end. To be called while another thread serves."""
        self.shutdown()
        self.server_close()
        self.texts.close(self.limits.seconds)
        ends = time.monotonic() + 2  # for the last bytes of answers
        while time.monotonic() < ends:
            with self._lock:
                is_done = set(self._deadlines) >= self._open
            if is_done:
                break
            time.sleep(0.01)
        for connection in list(self._open):
            _end(connection)


def _body(message: str, status: int, *more: Any) -> bytes:
    return json.dumps(error_body(message, status, *more)).encode()


_FULL = _body("the server has all the connections that it takes. Try again.", 503)
_REFUSED = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Length: " + str(len(_FULL)).encode() + b"\r\n\r\n" + _FULL
)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    own = model.generation_config.eos_token_id
    listed = own if isinstance(own, list) else [own]
    return frozenset(word for word in [*listed, tokenizer.eos_token_id] if word is not None)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version = f"ipex/{__version__}"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.limits.seconds)  # of one read, and of one write
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle_one_request(self) -> None:
        self.server.expects_a_request(self.connection, True)
        super().handle_one_request()

    def log_message(self, *_: Any) -> None:
        pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self._write_error(message or HTTPStatus(code).phrase, code)
        self.close_connection = True

    def do_GET(self) -> None:
        self.server.expects_a_request(self.connection, False)
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body that nobody reads would be taken for the next request
        if self.path == "/health":
            return self._write({"status": "ok"})
        own = {"id": self.server.name, "object": "model", "created": self.server.began, "owned_by": "ipex"}
        if self.path == "/v1/models":
            return self._write({"object": "list", "data": [own]})
        if self.path == f"/v1/models/{self.server.name}":
            return self._write(own)
        return self._write_error(f"expected a path that is served, got {self.path}.", 404)

    def do_POST(self) -> None:
        try:
            body = self._body()
            self.server.expects_a_request(self.connection, False)
            is_chat = self.path == "/v1/chat/completions"
            if not is_chat and self.path != "/v1/completions":
                raise BadRequest(f"expected a path that is served, got {self.path}.", status=404)
            server = self.server
            asked = read(body, is_chat, server.name, server.tokenizer, server.ends, server.longest)
            text = server.texts.begin(asked.wanted)
        except BadRequest as error:
            return self._write_error(str(error), error.status, error.param, error.code)
        except Busy:
            return self._write_error("the server has all the requests that it takes. Try again.", 429)
        answer = Answer(asked, text, server.name, server.tokenizer)
        try:
            return self._stream(answer) if asked.streams else self._whole(answer)
        finally:
            text.leave()

    def _body(self) -> Any:
        sizes = self.headers.get_all("Content-Length", [])
        size = sizes[0] if len(sizes) == 1 and "Transfer-Encoding" not in self.headers else ""
        if not (size.isascii() and size.isdecimal()):
            self.close_connection = True  # where such a request ends, proxies see in other ways
            raise BadRequest("expected one Content-Length, and no Transfer-Encoding.", status=411)
        if int(size) > self.server.limits.request_bytes:
            self.close_connection = True
            raise BadRequest(f"expected at most {self.server.limits.request_bytes} bytes, got {size}.", status=413)
        content = self.rfile.read(int(size))
        if len(content) < int(size):
            raise ConnectionError
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"expected JSON: {error}") from error

    def _whole(self, answer: Answer) -> None:
        pieces = []
        try:
            for piece in answer.pieces():
                if self._has_gone():
                    return
                pieces.append(piece)
        except Exception as error:
            return self._write_error(f"generating failed: {error}", 500)
        self._write(answer.whole("".join(pieces)))

    def _stream(self, answer: Answer) -> None:
        self.close_connection = True  # its end is that of the answer
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for chunk in answer.chunks():
                if self._has_gone():
                    return
                if chunk is not None:
                    self._write_event(json.dumps(chunk))
        except OSError:
            return
        except Exception as error:
            return self._write_event(_body(f"generating failed: {error}", 500).decode())
        self._write_event("[DONE]")

    def _write_event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())

    def _has_gone(self) -> bool:
        """Whether the client has closed its side."""
        if not select.select([self.connection], [], [], 0)[0]:
            return False
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _write_error(self, message: str, status: int, param: str | None = None, code: str | None = None) -> None:
        self._write(error_body(message, status, param, code), status)

    def _write(self, body: dict[str, Any], status: int = 200) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
