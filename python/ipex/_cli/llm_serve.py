"""Serve a language model in OpenAI's form: /v1/chat/completions and /v1/completions. Requests are answered together."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from .llm import add_model, the_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    add_model(parser)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (%(default)s: this machine)")
    parser.add_argument("--port", type=int, default=8000, help="%(default)s; 0: any that is free")
    parser.add_argument("--name", help="the model's name in requests; by default that of the file or folder")
    parser.add_argument("--together", type=int, default=8, help="requests that are answered together (%(default)s)")
    parser.add_argument("--waiting", type=int, default=64, help="and that wait; more are refused (%(default)s)")
    parser.add_argument(
        "--prefix-cache-mib",
        type=int,
        default=1024,
        help="memory for what was read, which requests that begin alike take over (%(default)s; 0: none)",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT, then finish what was begun."""
    if options.together < 1 or options.waiting < 1:
        raise ValueError("ipex llm serve: expected at least 1 in --together and --waiting.")
    if options.prefix_cache_mib < 0:
        raise ValueError(
            f"ipex llm serve: expected 0 or more in --prefix-cache-mib, got {options.prefix_cache_mib}. "
            "0 keeps nothing of earlier requests."
        )
    model, tokenizer = the_model(options)
    from ..llm._server import Server

    name = options.name or Path(options.model).resolve().stem
    server = Server(
        (options.host, options.port),
        model,
        tokenizer,
        name,
        options.together,
        options.waiting,
        prefix_cache_mib=options.prefix_cache_mib,
    )
    if reason := server.texts.why_not_shared:
        print(f"requests share nothing of what they read: {reason}", file=sys.stderr)
    ended = threading.Event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    print(f"serving {name} at http://{options.host}:{server.server_address[1]}/v1", file=sys.stderr, flush=True)
    try:
        ended.wait()
    finally:
        server.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0
