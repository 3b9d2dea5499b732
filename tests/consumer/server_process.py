"""The server of examples/cpp/server as a process: start it, ask it, end it."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import numpy
from torch import nn

from by_hand import TORCH

SOURCE = Path(__file__).parents[2] / "examples" / "cpp" / "server"
WAIT_SECONDS = 60


def mlp():
    return nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 5)).eval()


def npy(*arrays):
    file = io.BytesIO()
    for array in arrays:
        numpy.save(file, array)
    return file.getvalue()


class Server:
    """A running server."""

    def __init__(self, command):
        environment = {**os.environ, "LD_LIBRARY_PATH": str(TORCH / "lib")}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        found = re.search(r"listening on 127.0.0.1:(\d+)", line)
        assert found, line + self.process.stderr.read()
        self.port = int(found[1])

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)

    def request(self, method, target, body=None, headers=None):
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, target, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read(), response.headers

    def predict(self, *arrays):
        return self.request("POST", "/predict", npy(*arrays))

    def send(self, data, end=False):
        """Send bytes as they are, and return the answer up to the end of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_SECONDS) as client:
            client.sendall(data)
            if end:
                client.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: client.recv(65536), b"")).decode()

    def metrics(self):
        status, text, headers = self.request("GET", "/metrics")
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def stop(self, seconds=WAIT_SECONDS):
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=seconds)
        assert errors == ""
        return self.process.returncode


@contextlib.contextmanager
def killed_in_the_end(server):
    with server.process:  # whose pipes are closed in the end
        try:
            yield
        finally:
            server.process.kill()


@contextlib.contextmanager
def running(program, path, *options):
    server = Server([program, path, "--port", "0", *map(str, options)])
    with killed_in_the_end(server):
        yield server
        assert server.process.poll() is None, "the server ended by itself"
        assert server.stop() == 0
