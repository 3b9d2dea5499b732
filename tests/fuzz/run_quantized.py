"""Quantise random networks, and compare them with the same arithmetic in plain tensors:

    python tests/fuzz/run_quantized.py --cases 2000 --seed 0

A failing case is printed with its number: `--first N --cases 1 --show` runs it again, and prints network and graph.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.program import Choices
from fuzz.quantized_check import Verdict, check
from fuzz.quantized_linears import check_linears
from fuzz.quantized_networks import Drawing

BYTES = 400


def data_of(seed: int, case: int) -> bytes:
    return random.Random(f"{seed}/{case}").randbytes(BYTES)


def verdict_of(data: bytes, ranks: tuple[int, ...] = (2,), linears: bool = False, attends: bool = False) -> Verdict:
    try:
        return check_linears(data) if linears else check(data, ranks, attends)
    except Exception as error:  # what raises is a finding
        return Verdict("failed", f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-2)}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--show", action="store_true", help="print each network before it is run")
    parser.add_argument("--ranks", type=int, nargs="*", default=[2], help="of images")
    parser.add_argument(
        "--linears", action="store_true", help="by dynamic and weight_only, in place of prepare and convert"
    )
    parser.add_argument("--attends", action="store_true", help="networks of tokens, most of which have attention")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    started = time.monotonic()
    for case in range(options.first, options.first + options.cases):
        data, ranks = data_of(options.seed, case), tuple(options.ranks)
        if options.show:
            plan = Drawing(Choices(data), ranks, options.linears, options.attends).plan()
            for number, (node, shape) in enumerate(zip(plan.nodes, plan.shapes[1:]), 1):
                print(number, node.op, node.inputs, shape, node.arguments)
            print("input", plan.shapes[0], "returned", plan.returned, "exact" if plan.is_exact else "")
        verdict = verdict_of(data, ranks, options.linears, options.attends)
        counts[verdict.kind] += 1
        if verdict.kind == "failed":
            print(f"FAILED seed {options.seed} case {case}: {verdict.detail}", flush=True)
    print(f"{options.cases} cases in {time.monotonic() - started:.0f} s: {dict(counts)}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
