"""Lets things fail while models are optimised, saved, loaded and called: memory, time, and the process itself.

    python tests/faults/run.py --cases 20000 --seed 1
    python tests/faults/run.py --of allocations --actions "first call" --cases 500
    python tests/faults/run.py --of forks --seed 1 --case 12        # that one, in this process

Memory: one allocation of ipex, drawn from all that an action makes, fails (inject.cpp). oneDNN's are among them, of
primitives above all. Time: Ctrl-C at a drawn moment. The process: it forks while other threads are within calls.

What was asked for may be refused with an error about memory, or done another way, with the right result. The same
again succeeds. The process goes on, the caller's tensors are as they were, and nothing is lost. `make faults`
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "examples")]

from children import parser_of, run_in_children  # noqa: E402
from faults.injecting import is_preloaded, run_preloaded  # noqa: E402


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--of", choices=("allocations", "interrupts", "forks"), help="only these; by default a third each"
    )
    parser.add_argument("--actions", default="", help="a regular expression for names of actions")
    options = parser.parse_args()
    if not is_preloaded():
        return run_preloaded(__file__, sys.argv[1:])
    from faults.allocations import Allocations
    from faults.forks import Forks
    from faults.interrupts import Interrupts

    kinds = {"allocations": Allocations, "interrupts": Interrupts, "forks": Forks}
    wrong = False
    for name, make in kinds.items():
        if options.of not in (None, name):
            continue
        cases = make(options.seed, options.actions)
        if options.case is not None:
            faulthandler.enable()
            print(cases.name_of(options.case), flush=True)
            cases.prepare(range(options.case, options.case + 1))
            print(cases.run(options.case))
            continue
        count = options.cases if options.of else options.cases // len(kinds)
        cases.prepare(range(count))
        found = run_in_children(
            cases.run,
            good=cases.good,
            name_of=cases.name_of,
            title=f"faults: {name}, seed {options.seed}",
            cases=count,
            seconds=options.seconds,
            cases_of_a_child=10,
        )
        wrong = wrong or bool(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
