"""Sends requests that are drawn, most of them damaged, to the server of examples/cpp/server.

    python tests/consumer/fuzz_requests/run.py --cases 20000 --seed 1
    python tests/consumer/fuzz_requests/run.py --seed 1 --case 1234     # that one, with all that is sent and comes back
    python tests/consumer/fuzz_requests/run.py --server build/server    # a program that is built already

A request that is not well formed is refused, and whatever follows on its connection is not taken for a request. The
server goes on, with the memory and the descriptors that it had, and ends well at SIGTERM. `make fuzz-requests`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3] / "examples")]

import torch  # noqa: E402

import ipex  # noqa: E402
from build_cpp import build  # noqa: E402
from children import parser_of  # noqa: E402
from consumer.fuzz_requests.batches import Run  # noqa: E402
from consumer.fuzz_requests.watched import Model, perceptron  # noqa: E402
from consumer.server_process import SOURCE, mlp  # noqa: E402


def saved_model(folder: Path) -> tuple[Path, Model]:
    """A file for the server, and what it computes."""
    torch.manual_seed(0)
    eager = mlp()
    ipex.jit_optimize(eager, torch.randn(2, 24)).save(folder / "model.pt")
    return folder / "model.pt", perceptron([parameter.detach().numpy() for parameter in eager.parameters()])


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--server", type=Path, help="a program that is built already")
    parser.add_argument("--limit", type=float, default=20, help="seconds that an answer may take")
    parser.add_argument("--ends", type=int, default=20, help="how often SIGTERM comes while requests do")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = options.server or build(SOURCE, Path(folder) / "build") / "server"
        path, model = saved_model(Path(folder))
        run = Run([program, path], model, options.seed, options.limit)
        if options.case is not None:
            return run.show(options.case)
        run.run_batches(options.cases, options.seconds)
        run.run_ends(options.ends)
    print(f"fuzz-requests: seed {options.seed}: {options.cases} cases: {dict(run.counts)}")
    for text, places in sorted(run.wrong.items()):
        print(f"  {len(places)} times {text}: cases {places[:5]}")
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
