"""Load `ipex llm serve` over loopback: clients that each ask one request after the other, and read a stream.

    python benchmarks/llm_serve.py MODEL --clients 8 --requests 3 --together 1 8

starts a server for each number of requests that it may answer together, loads them in turn, and prints all tokens a
second, and the time to the first token of a request, median and 99th percentile. `--url` loads a server that runs
already.

    python benchmarks/llm_serve.py MODEL --prefix 1000

starts a server with a prefix cache and one without, gives each two requests that begin with so many tokens, and prints
the time to the first token of both, and the ratio of the second ones.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import statistics
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit


def ask(url: str, prompt: str | list[int], tokens: int) -> tuple[float, int]:
    """Return the seconds to the first token, and how many came."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=600)
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
    start, first, count = time.perf_counter(), 0.0, 0
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream_options": {"include_usage": True}}))
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(answer.read().decode())
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        if chunk["choices"] and chunk["choices"][0]["text"]:
            first = first or time.perf_counter() - start
        count = chunk.get("usage", {}).get("completion_tokens", count)
    connection.close()
    return first, count


def load(url: str, clients: int, requests: int, words: int, tokens: int) -> str:
    """Return a line of figures."""
    found: list[tuple[float, int]] = []

    def client(number: int) -> None:
        for request in range(requests):
            said = " ".join(f"{number * 7 + request} and {word}" for word in range(words // 4))
            found.append(ask(url, f"Go on counting: {said}", tokens))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    if len(found) != clients * requests:
        raise RuntimeError(f"expected {clients * requests} answers, got {len(found)}")
    firsts = sorted(first for first, _ in found)
    last = firsts[min(len(firsts) - 1, int(len(firsts) * 0.99))]
    all_tokens = sum(count for _, count in found)
    return (
        f"{all_tokens / seconds:7.1f} tokens/s, first token p50 {statistics.median(firsts) * 1e3:6.0f} ms, "
        f"p99 {last * 1e3:6.0f} ms ({len(found)} requests, {all_tokens} tokens)"
    )


def share(url: str, prefix: int, turn: int) -> tuple[float, float]:
    """Return the seconds to the first token of two requests that begin with so many tokens, new ones at each turn."""
    start = [100 + (turn * 7 + place * place) % 1000 for place in range(prefix)]
    firsts = [ask(url, [*start, *range(200 + number, 216 + number)], 2)[0] for number in range(2)]
    return firsts[0], firsts[1]


def compare_prefixes(urls: list[str], prefix: int, rounds: int) -> None:
    """Print times of a server with a prefix cache and of one without, in turn."""
    ratios = []
    for turn in range(rounds):
        (first, shared), (_, alone) = (share(url, prefix, turn) for url in urls)
        ratios.append(shared / alone)
        print(
            f"round {turn + 1}: first request {first * 1e3:.0f} ms; second with a prefix cache {shared * 1e3:.0f} ms, "
            f"without {alone * 1e3:.0f} ms, ratio {ratios[-1]:.3f}",
            flush=True,
        )
    print(f"median ratio {statistics.median(ratios):.3f}")


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="what ipex llm serve takes")
    parser.add_argument("--url", help="of a server that runs already")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=2, help="of each client (%(default)s)")
    parser.add_argument("--words", type=int, default=32, help="about so many words of prompt (%(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="new ones of each request (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="the servers in turn, so often (%(default)s)")
    parser.add_argument("--together", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prefix", type=int, help="compare servers with and without a prefix cache, of so many tokens")
    parser.add_argument("options", nargs="*", help="behind --: further options of ipex llm serve")
    options = parser.parse_args()
    rest = options.clients, options.requests, options.words, options.tokens
    if options.url:
        return print(load(options.url, *rest))
    if not options.model:
        parser.error("expected a model, or --url")
    command = [sys.executable, "-m", "ipex", "llm", "serve", options.model, "--port", "0", *options.options]
    servers = []
    of_each = [["--together", str(together)] for together in options.together]
    if options.prefix:
        of_each = [[], ["--prefix-cache-mib", "0"]]
    try:
        for own in of_each:
            server = subprocess.Popen([*command, *own], stderr=subprocess.PIPE, text=True)
            servers.append(server)
            assert server.stderr is not None
            line = next((line for line in server.stderr if line.startswith("serving ")), "")
            if not line:
                raise RuntimeError("the server did not start")
            threading.Thread(target=server.stderr.read, daemon=True).start()
            options.url = [*(options.url or []), line.split(" at ")[1].strip()]
        if options.prefix:
            return compare_prefixes(options.url, options.prefix, options.rounds)
        for turn in range(options.rounds):
            for together, url in zip(options.together, options.url):
                print(f"round {turn + 1}, together {together:2}: {load(url, *rest)}", flush=True)
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
        for server in servers:
            server.wait(60)


if __name__ == "__main__":
    main()
