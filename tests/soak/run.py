"""Uses ipex as a server would, for long: results stay eager's, and memory, threads and descriptors don't grow.

    python tests/soak/run.py --minutes 5 --seed 1
    python tests/soak/run.py --seed 1 --cycle 12                # that cycle alone: what is drawn is the same
    python tests/soak/run.py --only load,call_from_threads      # which action leaks
    python tests/soak/run.py --only load --stock                # whether it is TorchScript's own leak

The seed draws some kinds of model, and for each cycle ten actions of soak/actions.py. After a cycle all models are
dropped, and the process is measured. A wrong result, a growing count or a slope of memory above the bound in
soak/footprint.py ends with status 1.
`make soak MINUTES=60`.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import astuple
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # on a busy machine threads that spin hold up each other
# oneDNN, ours and torch's, else keeps 1024 primitives, and memory grows for an hour until these are there.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "examples")]

import torch  # noqa: E402

import ipex  # noqa: E402
from kinds_of_model import KINDS  # noqa: E402
from soak.actions import ACTIONS, ALSO, OF_STOCK, Session  # noqa: E402
from soak.footprint import HEADER, Sample, one_arena, rows, sample  # noqa: E402
from soak.models import WHOLE  # noqa: E402

ACTIONS_OF_A_CYCLE = 10
KINDS_OF_A_RUN = 8  # with all, it takes an hour until caches hold what they ever will, and that looks like a leak
THREADS = 2
MOST_WRONG = 10
LEAK = 100 << 10  # bytes
SECONDS_BETWEEN_LINES = 30


def names(text: str) -> list[str]:
    return text.split(",")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--cycles", type=int, help="stop after so many, however long they take")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cycle", type=int, help="run this one alone, and print what it does")
    parser.add_argument("--only", type=names, help=f"actions, with commas between: {', '.join(ACTIONS)}")
    parser.add_argument("--log", help="a file for seconds, KB, threads and descriptors after each cycle")
    parser.add_argument("--kinds", type=names, help=f"kinds of model, with commas between; {KINDS_OF_A_RUN} drawn")
    parser.add_argument("--stock", action="store_true", help="models of stock TorchScript, and what it can do too")
    parser.add_argument("--plant", type=names, default=[], help=argparse.SUPPRESS)
    return parser


def plant(session: Session) -> None:
    """Do what must be told, where it is asked for."""
    if "leak" in session.plants:
        session.planted.append(b"\1" * LEAK)
    if "thread" in session.plants:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    if "descriptor" in session.plants:
        session.planted.append(os.dup(1))


def run_cycle(session: Session, actions: list[str], seed: int, cycle: int, is_loud: bool) -> list[str]:
    """Do what is drawn for this cycle, drop all models, and say what was wrong."""
    session.draw = random.Random(f"{seed} {cycle}")
    torch.manual_seed(session.draw.getrandbits(32))
    done: list[str] = []
    for _ in range(ACTIONS_OF_A_CYCLE):
        done.append(session.draw.choice(actions))
        if is_loud:
            print(done[-1], flush=True)
        try:
            wrong = {**ACTIONS, **ALSO}[done[-1]](session)
        except Exception as error:
            wrong = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if wrong:
            break
    plant(session)
    session.subjects.clear()
    ipex.set_fp32_math_mode(ipex.FP32MathMode.FP32)
    return [f"{done[-1]}: {wrong} (--seed {seed} --cycle {cycle}, after {', '.join(done[:-1])})"] if wrong else []


def main() -> int:
    options = parser().parse_args()
    warnings.simplefilter("ignore")
    one_arena()
    actions = options.only or [action.__name__ for action in OF_STOCK if options.stock] or [*ACTIONS]
    kinds = options.kinds or random.Random(options.seed).sample([*KINDS, *WHOLE], KINDS_OF_A_RUN)
    print(f"soak: models: {', '.join(kinds)}", flush=True)
    samples: list[Sample] = []
    wrong: list[str] = []
    cycle, begin = options.cycle or 0, time.monotonic()
    said = begin
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder), kinds, options.stock, options.plant)
        while len(wrong) < MOST_WRONG:
            found = run_cycle(session, actions, options.seed, cycle, options.cycle is not None)
            for text in found:
                print(f"WRONG {text}", flush=True)
            wrong += found
            samples.append(sample(THREADS))
            cycle += 1
            now = time.monotonic()
            if now - said > SECONDS_BETWEEN_LINES:
                said = now
                print(f"{now - begin:.0f} s, {cycle} cycles, {samples[-1].kilobytes / 1024:.1f} MB", flush=True)
            if options.log:
                with Path(options.log).open("a") as log:
                    print(*astuple(samples[-1]), sep=",", file=log)
            if options.cycle is not None or cycle == options.cycles:
                break
            if options.cycles is None and now - begin > 60 * options.minutes:
                break
    print(f"soak: {len(samples)} cycles, {time.monotonic() - begin:.0f} s, {len(wrong)} wrong, seed {options.seed}")
    if len(samples) < 8:
        print("soak: too few cycles to judge what grows")
        return 1 if wrong else 0
    table = rows(samples)
    print(HEADER)
    for row in table:
        print(row)
    return 1 if wrong or any(row.fault for row in table) else 0


if __name__ == "__main__":
    sys.exit(main())
