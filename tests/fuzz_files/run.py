"""Loads saved models that are damaged, and calls them.

    python tests/fuzz_files/run.py --cases 20000 --seed 1
    python tests/fuzz_files/run.py --seed 1 --case 1234        # that one, in this process

A damaged model may be refused, or give other numbers. It may not end the process, hang, or take memory without bound.
`make fuzz-files`; on libraries with AddressSanitizer: `make asan TESTS=tests/fuzz_files`.
"""

from __future__ import annotations

import faulthandler
import io
import os
import random
import sys
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "examples")]

import torch  # noqa: E402

import ipex  # noqa: E402, F401  registers the ops
from children import parser_of, run_in_children  # noqa: E402
from fuzz_files.damage import damaged  # noqa: E402
from kinds_of_model import KINDS, model_and_input  # noqa: E402


class Models:
    """Saved models of every kind of packed weight, with their inputs."""

    def __init__(self) -> None:
        self.saved = []
        for name in KINDS:
            model, x = model_and_input(name)
            buffer = io.BytesIO()
            torch.jit.save(model, buffer)
            self.saved.append((name, buffer.getvalue(), x))

    def run(self, seed: int, index: int) -> str:
        """What became of it: "refused", "raised" by a call, or "ran"."""
        draw = random.Random(f"{seed} {index}")
        _, model, x = self.saved[index % len(self.saved)]
        try:
            loaded = torch.jit.load(io.BytesIO(damaged(model, draw)))
        except Exception:
            return "refused"
        try:
            with torch.no_grad():
                for _ in range(2):
                    loaded(x)
            torch.jit.save(loaded, io.BytesIO())
        except Exception:
            return "raised"
        return "ran"


def main() -> int:
    options = parser_of(__doc__).parse_args()
    warnings.simplefilter("ignore")
    models = Models()
    if options.case is not None:
        faulthandler.enable()
        print(models.saved[options.case % len(models.saved)][0], flush=True)
        print(models.run(options.seed, options.case))
        return 0
    wrong = run_in_children(
        lambda index: models.run(options.seed, index),
        good=("refused", "raised", "ran"),
        name_of=lambda index: models.saved[index % len(models.saved)][0],
        title=f"fuzz-files: {len(models.saved)} models, seed {options.seed}",
        cases=options.cases,
        seconds=options.seconds,
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
