"""Loads examples/cpp/server, with a model that ipex optimised and with the same model in frozen TorchScript.

Both servers run all the time and are loaded in turn, for a few seconds each, by clients that ask again as soon as they
are answered. Prints Markdown:

    PYTHONPATH=examples python benchmarks/server.py --models resnet50 --clients 1 8

The figures of docs/how_to/serve.md come from here.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import io
import os
import re
import statistics
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy
import torch

import ipex
from build_cpp import build
from ipex.bench.models import MODELS

SOURCE = Path(__file__).parents[1] / "examples" / "cpp" / "server"
TORCH_LIBRARIES = Path(torch.__file__).parent / "lib"
DTYPES = {torch.float32: "float32", torch.int64: "int64"}


class Server:
    """A running server, and how long its requests took."""

    def __init__(self, program: Path, model: Path, inputs: tuple[torch.Tensor, ...], options: list[str]) -> None:
        self.body = self._body(inputs)
        self.latencies: list[float] = []
        self.rates: list[float] = []
        shapes = ["x".join(["*", *map(str, x.shape[1:])]) for x in inputs]
        specs = [word for x, shape in zip(inputs, shapes) for word in ("--input", f"{DTYPES[x.dtype]}:{shape}")]
        environment = {**os.environ, "LD_LIBRARY_PATH": str(TORCH_LIBRARIES)}
        command = [str(program), str(model), *specs, "--port", "0", *options]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"127.0.0.1:(\d+)", self.process.stdout.readline())
        if not found:
            raise SystemExit("server.py: the server did not start")
        self.port = int(found[1])

    @staticmethod
    def _body(inputs: tuple[torch.Tensor, ...]) -> bytes:
        file = io.BytesIO()
        for x in inputs:
            numpy.save(file, x.numpy())
        return file.getvalue()

    def _ask(self, end: float) -> list[float]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        latencies = []
        while (start := time.perf_counter()) < end:
            connection.request("POST", "/predict", self.body)
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                raise SystemExit(f"server.py: got {response.status}")
            latencies.append(time.perf_counter() - start)
        connection.close()
        return latencies

    def load(self, clients: int, seconds: float, keep: bool = True) -> None:
        """Ask for so many seconds."""
        start = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            found = [x for own in pool.map(self._ask, [start + seconds] * clients) for x in own]
        if keep:
            self.latencies += found
            self.rates.append(len(found) / (time.perf_counter() - start))

    def row(self, title: str, clients: int) -> str:
        """Of the table."""
        cuts = statistics.quantiles(self.latencies, n=100, method="inclusive")
        columns = [title, str(clients), f"{statistics.median(self.rates):.1f}"]
        columns += [f"{1e3 * cuts[p - 1]:.1f}" for p in (50, 95, 99)]
        return f"| {' | '.join([*columns, str(len(self.latencies))])} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet50", "mobilenet_v2", "bert_base"], choices=list(MODELS))
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 8], help="who ask at the same time")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5, help="of each server in each round")
    parser.add_argument("--options", default="--workers 1 --max-batch 8 --max-delay-us 2000", help="of the server")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*torch.jit.*")

    print("| model, server | clients | requests/s | p50, ms | p95, ms | p99, ms | requests |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        folder = Path(name)
        program = build(SOURCE, folder / "build") / "server"
        for model in options.models:
            module, inputs = MODELS[model].make(1)
            traced = torch.jit.trace(module, inputs)
            files = {"frozen TorchScript": folder / "stock.pt", "ipex": folder / "ipex.pt"}
            torch.jit.freeze(traced).save(files["frozen TorchScript"])
            ipex.jit_optimize(traced).save(files["ipex"])
            for clients in options.clients:
                servers = {
                    title: Server(program, path, inputs, options.options.split()) for title, path in files.items()
                }
                for round_ in range(options.rounds + 1):
                    for server in servers.values():
                        server.load(clients, options.seconds, keep=round_ > 0)  # the first one warms up
                for title, server in servers.items():
                    print(server.row(f"{MODELS[model].title}, {title}", clients), flush=True)
                    server.process.terminate()
                    server.process.wait()


if __name__ == "__main__":
    main()
