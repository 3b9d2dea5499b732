"""Calls every op of ours with arguments that fit, that nearly fit, and that don't, in memory between guard pages.

    python tests/fuzz_ops/run.py --cases 20000 --seed 1
    python tests/fuzz_ops/run.py --seed 1 --case 1234        # that one, in this process

An op may raise; it may not crash, hang, ask for memory without bound, or give a tensor that reaches beyond its memory.
`make fuzz-ops`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "examples")]

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from children import parser_of, run_in_children  # noqa: E402
from fuzz_ops.altered import altered, drawn  # noqa: E402
from fuzz_ops.examples import examples  # noqa: E402
from fuzz_ops.guarded import guarded, lies_in_its_storage  # noqa: E402
from fuzz_ops.recorded import Recorded, call, never_called, recorded  # noqa: E402

UNFIT = 0.1  # of the cases are drawn by types alone


class Corpus:
    """What there is to call."""

    def __init__(self, cases: int, seed: int, only: str) -> None:
        found = recorded(cases, seed)
        by_name = {str(r.op): r for r in found}
        given = examples()
        for name in never_called(found):
            space, op, overload = name.split(".")
            function = getattr(getattr(getattr(torch.ops, space), op), overload)
            calls = [given[f"{op}.{overload}"]] if f"{op}.{overload}" in given else _like_siblings(function, by_name)
            by_name[name] = Recorded(function, [str(a.type) for a in function._schema.arguments], calls)
        self.contexts: dict[str, list[Any]] = defaultdict(list)
        for r in found:
            for given in r.calls:
                for value, kind in zip(given, r.types):
                    if "__torch__" in kind and not isinstance(value, list):
                        self.contexts[kind].append(value)
        self.ops = [by_name[name] for name in sorted(by_name) if only in name]

    def case(self, seed: int, index: int) -> tuple[Recorded, list[Any] | None]:
        """An op, and its arguments."""
        draw = random.Random(f"{seed} {index}")
        torch.manual_seed(index)
        op = self.ops[index % len(self.ops)]
        if op.calls and draw.random() > UNFIT:
            given = altered(draw.choice(op.calls), op.types, op.calls, draw)
        else:
            made = drawn(op.types, self.contexts, draw)
            if made is None:
                return op, None
            given = made
        return op, [_in_guarded_memory(value, draw) for value in given]


def _like_siblings(function: Any, recorded_ops: dict[str, Recorded]) -> list[list[Any]]:
    """Calls of another overload, or of an op that this one's name begins with, and what these lack by their type."""
    rest = {"float": 0.1, "int": 3, "ScalarType": 15, "int[]": [0, 1], "float[]": [0.1, 3.0]}
    name = function._schema.name
    siblings = [r for r in recorded_ops.values() if r.calls and name.startswith(r.op._schema.name)]
    for sibling in sorted(siblings, key=lambda r: -len(r.op._schema.name)):
        names = [a.name for a in sibling.op._schema.arguments]
        known = [dict(zip(names, given)) for given in sibling.calls]
        return [
            [given.get(a.name, rest.get(a.type.annotation_str, 3)) for a in function._schema.arguments]
            for given in known
        ]
    return []


def _in_guarded_memory(value: Any, draw: random.Random) -> Any:
    if isinstance(value, Tensor):
        return guarded(value, draw)
    return [_in_guarded_memory(v, draw) for v in value] if isinstance(value, list) else value


def is_torchs_own(op: Recorded, given: list[Any]) -> bool:
    """Whether torch itself touches what is not there: its attention, where a value has other keys than the key has."""
    by_name = dict(zip((a.name for a in op.op._schema.arguments), given))
    key, value = by_name.get("key"), by_name.get("value")
    if not isinstance(key, Tensor) or not isinstance(value, Tensor) or min(key.dim(), value.dim()) < 2:
        return False
    return key.shape[:-1] != value.shape[:-1]


def result_tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [t for part in result for t in result_tensors(part)] if isinstance(result, (list, tuple)) else []


def run_case(corpus: Corpus, seed: int, index: int) -> str:
    """What became of it: "right", "raised", "left out"; or a sentence that says what is wrong."""
    op, given = corpus.case(seed, index)
    if given is None or is_torchs_own(op, given):
        return "left out"
    try:
        results = result_tensors(call(op.op, given))
    except Exception:
        return "raised"
    for tensor in results:
        if not lies_in_its_storage(tensor):
            return f"{op.op} gives a tensor that reaches beyond its memory"
        with contextlib.suppress(RuntimeError):  # of other layouts and devices
            tensor.clone()
    return "right"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--models", type=int, default=400, help="drawn, whose calls are recorded")
    parser.add_argument("--only", default="", help="ops with this in their names")
    options = parser.parse_args()
    faulthandler.enable()
    corpus = Corpus(options.models, options.seed, options.only)
    if options.case is not None:
        op, given = corpus.case(options.seed, options.case)
        print(op.op._schema)
        for argument, value in zip(op.op._schema.arguments, given or []):
            shown = (
                f"{value.dtype} {list(value.shape)} {value.stride()} {value.device}"
                if isinstance(value, Tensor)
                else value
            )
            print(f"  {argument.name} = {str(shown)[:300]}", flush=True)
        print(run_case(corpus, options.seed, options.case))
        return 0
    wrong = run_in_children(
        lambda index: run_case(corpus, options.seed, index),
        good=("right", "raised"),
        name_of=lambda index: str(corpus.ops[index % len(corpus.ops)].op),
        title=f"fuzz-ops: {len(corpus.ops)} ops, seed {options.seed}",
        cases=options.cases,
        seconds=options.seconds,
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
