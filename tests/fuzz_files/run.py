"""Loads saved models that are damaged, and calls them.

    python tests/fuzz_files/run.py --cases 20000 --seed 1
    python tests/fuzz_files/run.py --of "IPEX 2"               # files whose name matches alone
    python tests/fuzz_files/run.py --seed 1 --case 1234        # that one, in this process; a case counts by --of

A damaged model may be refused, or give other numbers. It may not end the process, hang, or take memory without bound.
`make fuzz-files`; on libraries with AddressSanitizer: `make asan TESTS=tests/fuzz_files`.
"""

from __future__ import annotations

import faulthandler
import io
import os
import random
import re
import sys
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "examples")]

import torch  # noqa: E402

import ipex  # noqa: E402
from children import parser_of, run_in_children  # noqa: E402
from fuzz_files.damage import damaged, damaged_aot  # noqa: E402
from kinds_of_model import KINDS, model_and_input  # noqa: E402

SAVED_BY_IPEX2 = Path(__file__).parents[1] / "runtime" / "saved_by_ipex2"


class Models:
    """Files of models with every kind of packed weight, portable and packed ahead of time, and files of IPEX 2.x."""

    def __init__(self, folder: Path, of: str = "") -> None:
        self.folder = folder
        self.saved: list[tuple[str, Path, tuple[torch.Tensor, ...]]] = []
        for number, name in enumerate(KINDS):
            model, x = model_and_input(name)
            portable, packed = folder / f"{number}.pt", folder / f"{number}.ipex"
            torch.jit.save(model, portable)
            ipex.aot_save(model, packed, example_inputs=x)
            self.saved += [(name, portable, (x,)), (f"{name}, ahead of time", packed, (x,))]
        for values in sorted(SAVED_BY_IPEX2.glob("*.values.pt")):
            path = values.with_name(values.name.replace(".values", ""))
            if "recurrent" not in path.name:  # aten::lstm, which they become, reads beyond weights that are too small
                self.saved.append((f"{path.stem}, saved by IPEX 2", path, torch.load(values)[0]))
        self.saved = [row for row in self.saved if re.search(of, row[0])]

    def run(self, seed: int, index: int) -> str:
        """What became of it: "refused", "raised" by a call, or "ran"."""
        draw = random.Random(f"{seed} {index}")
        _, path, x = self.saved[index % len(self.saved)]
        damaged_file, is_portable = self.folder / f"damaged{path.suffix}", path.suffix == ".pt"
        damaged_file.write_bytes(damaged(path.read_bytes(), draw) if is_portable else damaged_aot(path, draw))
        try:
            loaded = ipex.load(damaged_file) if is_portable else ipex.aot_load(damaged_file)
        except RuntimeError:
            return "refused"
        try:
            with torch.no_grad():
                for _ in range(2):
                    loaded(*x)
                if path.parent == SAVED_BY_IPEX2:
                    loaded = ipex.jit_optimize(loaded)
                    loaded(*x)
            torch.jit.save(loaded, io.BytesIO())
        except Exception:
            return "raised"
        return "ran"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--of", default="", metavar="REGEX", help="damage files whose name matches alone")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        models = Models(Path(folder), options.of)
        if options.case is not None:
            faulthandler.enable()
            print(models.saved[options.case % len(models.saved)][0], flush=True)
            print(models.run(options.seed, options.case))
            return 0
        wrong = run_in_children(
            lambda index: models.run(options.seed, index),
            good=("refused", "raised", "ran"),
            name_of=lambda index: models.saved[index % len(models.saved)][0],
            title=f"fuzz-files: {len(models.saved)} files, seed {options.seed}",
            cases=options.cases,
            seconds=options.seconds,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
