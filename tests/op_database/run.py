"""Compare each op of PyTorch's own database, between packed ops and optimised, with eager:

    python tests/op_database/run.py --jobs 2
    python tests/op_database/run.py --cases 500 --seed 7            # so many of them, drawn at random
    python tests/op_database/run.py --only 'max|min' --variant out=
    python tests/op_database/run.py --case 'add/out=/float32/0/0'   # one, with its program and graph

Ends with counts. Every failure is printed with the name of its case.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process for each core
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

import ipex
from op_database import cases, check
from op_database.children import run_all
from op_database.program import program

SECONDS_BETWEEN_LINES = 10.0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="how many to draw; all without it")
    parser.add_argument("--seed", type=int, default=0, help="draws samples, wiring and, with --cases, the cases")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run cases")
    parser.add_argument("--only", default="", help="ops whose name has this regular expression")
    parser.add_argument("--variant", default="", help="variants whose name has this")
    parser.add_argument("--case", help="one case, by its name: prints the program and the graphs")
    parser.add_argument("--failures", type=Path, help="write what is wrong, with programs, to this file")
    return parser.parse_args(arguments)


def show(name: str) -> int:
    case = cases.parse(name)
    written = program(case)
    print(written.source)
    for number, argument in enumerate(written.arguments):
        print(f"a{number} = {argument}")
    for key, value in written.names.items():
        print(f"{key} = {value}")
    graphs = []

    def optimize(module: torch.jit.ScriptModule, **options: object) -> torch.jit.ScriptModule:
        optimized = ipex.jit_optimize(module, **options)
        graphs.append((module.inlined_graph, optimized.inlined_graph))
        return optimized

    verdict = check.check(case, optimize)
    for before, after in graphs[:1]:
        print("before:", before, "after:", after, sep="\n")
    print(f"{verdict.kind}: {verdict.detail}")
    return verdict.kind in ("wrong", "crash")


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.case:
        return show(options.case)
    chosen = [
        case
        for case in cases.all_cases(options.seed)
        if re.search(options.only, case.op) and options.variant in case.variant
    ]
    random.Random(options.seed).shuffle(chosen)  # a stretch of slow ops would hold up one process at the end
    chosen = chosen[: options.cases]
    print(f"op database: seed {options.seed}, {len(chosen)} cases, {options.jobs} jobs", flush=True)
    counts: Counter[tuple[str, str]] = Counter()
    started = printed = time.monotonic()
    failures = options.failures.open("w") if options.failures else None

    def on_verdict(case: cases.Case, verdict: check.Verdict) -> None:
        nonlocal printed
        counts[case.variant, verdict.kind] += 1
        if verdict.kind in ("wrong", "crash"):
            print(f"{verdict.kind.upper()} {case}: {verdict.detail[:300]}", flush=True)
            if failures:
                failures.write(f"{case}: {verdict.kind}: {verdict.detail}\n{verdict.source}\n")
                failures.flush()
        if time.monotonic() - printed > SECONDS_BETWEEN_LINES:
            printed = time.monotonic()
            wrong = sum(n for (_, kind), n in counts.items() if kind in ("wrong", "crash"))
            print(f"{sum(counts.values())} of {len(chosen)} cases, {wrong} wrong", flush=True)

    run_all(chosen, options.jobs, ipex.jit_optimize, on_verdict)
    ops, seconds = len({case.op for case in chosen}), time.monotonic() - started
    print(f"{len(chosen)} cases of {ops} ops in {seconds:.0f} s, seed {options.seed}")
    kinds = list(check.KINDS)
    print(" " * 24 + "".join(f"{kind:>15}" for kind in kinds))
    for variant in [*cases.VARIANTS, "all"]:
        row = [sum(n for (v, k), n in counts.items() if k == kind and variant in (v, "all")) for kind in kinds]
        print(f"{variant:24}" + "".join(f"{n:15}" for n in row))
    return 1 if any(kind in ("wrong", "crash") for _, kind in counts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
