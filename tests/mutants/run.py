"""Removes single conditions from passes and runtime, and says which removals no test notices: `make mutants`.

    python tests/mutants/run.py --count 300 --seed 1 --jobs 2        # draws 300, builds first: 20 minutes of CPU time
    python tests/mutants/run.py --count 300 --seconds 540            # a part; the same again goes on with it
    python tests/mutants/run.py --count 300 --tests tests/fuzz_ops   # what survived, on other tests
    python tests/mutants/run.py --of passes/lower --count 9999       # all of a folder; no other file is compiled anew
    python tests/mutants/run.py --mutant 1234                        # that one, with what pytest prints

One build holds all mutants (sources.py); a process has one, or none. Each test runs once without, and shows which
mutants it reaches. Then each mutant meets tests that reach it, those of the same name and folder first, then the
quickest, up to the first that fails, ends its process, or hangs. Tests that fail without a mutant are left out. Results
are kept in a file, line by line; a mutant that survived is tried again if there are tests that it has not met.

reasons.tsv says of conditions why no test can notice their removal: they only save time, or nothing brings them about.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from mutants.sources import Mutant, write_copy  # noqa: E402

TESTS = ("tests/passes", "tests/runtime", "tests/optimize", "tests/quantization", "tests/optim")
REASONS = HERE / "reasons.tsv"
BYTES = 16 << 30  # of a process: a mutant may ask for memory without bound
SECONDS_OF_A_FILE = 400
SECONDS_TO_START = 40
T = TypeVar("T")


class Done(NamedTuple):
    """How a run of pytest ended: "passed", "failed", the name of a signal, "hang", or "cut off" at the deadline."""

    how: str
    test: str
    output: str


class Passing(NamedTuple):
    """A test that passes without a mutant. `reached` has a bit for each mutant."""

    name: str
    seconds: float
    reached: int

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]

    @property
    def key(self) -> int:
        return zlib.crc32(self.name.encode())


class Build:
    """The folder with the copy of the tree, its libraries, and what is known of tests."""

    def __init__(self, folder: Path, deadline: float = float("inf"), root: Path = ROOT, of: str = "") -> None:
        self.folder, self.deadline = folder, deadline
        self.source, self.site, self.reached = folder / "source", folder / "site", folder / "reached"
        self.mutants = write_copy(root, self.source, of)

    def compile(self) -> None:
        """Build, unless these sources are built."""
        digest = hashlib.sha256(f"{sys.version} {self.source}".encode())
        for name in ("passes", "runtime", "python", "cmake", "CMakeLists.txt", "pyproject.toml"):
            for path in sorted(p for p in (self.source / name, *(self.source / name).rglob("*")) if p.is_file()):
                digest.update(path.read_bytes())
        known = self.folder / "built"
        if known.exists() and known.read_text() == digest.hexdigest():
            return
        print(f"mutants: builds {len(self.mutants)} mutants in {self.folder}", flush=True)
        # Objects, and torch's headers, lie there as in the tree: ccache then knows what is no mutant.
        venv = self.source / ".venv"
        if not venv.exists():
            venv.symlink_to(sys.prefix)
        python = venv / Path(sys.executable).relative_to(sys.prefix)
        command = [python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--upgrade"]
        command += ["--target", self.site, self.source]
        subprocess.run(command, check=True)
        for path in self.reached.glob("*"):  # of other numbers
            path.unlink()
        known.write_text(digest.hexdigest())

    def pytest(self, files: Iterable[str], options: list[str], seconds: float, **settings: str) -> Done:
        """Run tests of these files in a process of its own."""
        with tempfile.TemporaryDirectory() as folder:
            at = Path(folder) / "at"
            environment = {**os.environ, "OMP_NUM_THREADS": "2", "TMPDIR": folder, "MUTANT_AT": str(at), **settings}
            environment["PYTHONPATH"] = os.pathsep.join(map(str, (self.site, HERE)))
            command = ["sh", "-c", f'ulimit -d {BYTES >> 10}; exec "$@"', "sh", sys.executable, "-m", "pytest", "-q"]
            command += ["-p", "no:cacheprovider", "-p", "chosen_tests", "--tb=short", *options, *files]
            left = self.deadline - time.monotonic()
            with open(Path(folder) / "output", "w+") as output:
                process = subprocess.Popen(
                    command, cwd=self.source, env=environment, stdout=output, stderr=output, start_new_session=True
                )
                try:
                    status = process.wait(max(0.0, min(seconds, left)))
                    how = {0: "passed"}.get(status, "failed")
                    if status < 0:
                        how = signal.Signals(-status).name
                except subprocess.TimeoutExpired:
                    how = "hang" if seconds < left else "cut off"
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)  # and what tests started
                    process.wait()
                output.seek(0)
                text = output.read()
            named = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
            test = named[1] if named else at.read_text() if at.exists() else "while it was loaded"
            return Done(how, test, text)

    def record(self, file: str) -> None:
        """Run a file of tests without a mutant, and note what each test reaches."""
        record = self._record_of(file)
        if record.exists():
            return
        marks, part = record.with_suffix(".marks"), record.with_suffix(".part")
        marks.write_bytes(bytes(len(self.mutants)))
        part.write_text("")
        done = self.pytest([file], [], SECONDS_OF_A_FILE, MUTANTS_REACHED=str(marks), MUTANT_RECORD=str(part))
        marks.unlink()
        if done.how == "cut off":
            part.unlink()
            return
        if done.how != "passed":
            print(f"mutants: {file} without a mutant: {done.how}, {done.test}: left out", flush=True)
        part.rename(record)

    def tests_of(self, files: list[str]) -> list[Passing]:
        """Tests of these files that passed."""
        tests: list[Passing] = []
        for file in files:
            rows = [json.loads(line) for line in self._record_of(file).read_text().splitlines()]
            shared = 0
            for row in rows:
                shared |= int(row["shared"], 16)
            passed = [row for row in rows if row["outcome"] == "passed"]
            tests += [Passing(row["test"], row["seconds"], int(row["reached"], 16) | shared) for row in passed]
        return tests

    def is_recorded(self, file: str) -> bool:
        return self._record_of(file).exists()

    def _record_of(self, file: str) -> Path:
        self.reached.mkdir(parents=True, exist_ok=True)
        return self.reached / f"{file.replace('/', '+')}.jsonl"


def drawn(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Mutants of many files: one of each, then a second of each, and so on. More of them begin with the same."""
    draw = random.Random(seed)
    of_file: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        of_file.setdefault(mutant.path, []).append(mutant)
    for some in of_file.values():
        draw.shuffle(some)
    found: list[Mutant] = []
    while len(found) < min(count, len(mutants)):
        paths = [path for path, some in of_file.items() if some]
        draw.shuffle(paths)
        found += [of_file[path].pop() for path in paths]
    return found[:count]


def in_order(mutant: Mutant, tests: list[Passing]) -> list[Passing]:
    """Tests that reach the mutant: of its file's name, of its folder, and others; each time the quickest first."""
    path = Path(mutant.path)

    def rank(test: Passing) -> tuple[bool, bool, float]:
        file = Path(test.file)
        is_namesake = file.stem in (f"test_{path.stem}", f"test_{path.stem}s")
        return not is_namesake, str(file.parent) != f"tests/{path.parent}", test.seconds

    return sorted((test for test in tests if test.reached >> mutant.number & 1), key=rank)


def within(budget: float, tests: list[Passing]) -> list[Passing]:
    """The first tests, up to this many seconds, at least one; tests of a file together: they share fixtures."""
    some: list[Passing] = []
    for test in tests:
        if some and budget < test.seconds:
            continue
        some.append(test)
        budget -= test.seconds
    files = {test.file: i for i, test in reversed(list(enumerate(some)))}
    return sorted(some, key=lambda test: files[test.file])


class Results:
    """What became of mutants, in a file that grows."""

    def __init__(self, path: Path, mutants: list[Mutant]) -> None:
        self._path = path
        self._texts = {mutant.number: f"{mutant.path} {mutant.neutral} {mutant.text}" for mutant in mutants}
        self.rows: dict[int, dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            row = json.loads(line)
            if self._texts.get(row["mutant"]) == row["condition"]:  # not of other sources
                self.rows[row["mutant"]] = row

    def add(self, mutant: Mutant, outcome: str, **more: Any) -> None:
        row = {"mutant": mutant.number, "outcome": outcome, "condition": self._texts[mutant.number], **more}
        self.rows[mutant.number] = row
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def try_mutant(build: Build, results: Results, mutant: Mutant, tests: list[Passing], budget: float) -> None:
    """Run tests that reach the mutant and that it has not met, and note the outcome."""
    before = results.rows.get(mutant.number, {"outcome": "", "met": []})
    if before["outcome"] == "killed":
        return
    met, reaching = set(before.get("met", [])), in_order(mutant, tests)
    some = within(budget, [test for test in reaching if test.key not in met])
    if not some:
        if not before["outcome"]:
            results.add(mutant, "not reached", met=[])
        return
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as chosen:
        chosen.write("".join(test.name + "\n" for test in some))
        chosen.flush()
        limit = SECONDS_TO_START + 3 * sum(test.seconds for test in some)
        files = list(dict.fromkeys(test.file for test in some))
        begin = time.monotonic()
        done = build.pytest(files, ["-x"], limit, MUTANT_CHOSEN=str(mutant.number), MUTANT_TESTS=chosen.name)
    if done.how == "cut off":
        return
    seconds = round(time.monotonic() - begin, 1)
    if done.how == "passed":
        met |= {test.key for test in some}
        results.add(mutant, "survived", met=sorted(met), reaching=len(reaching), seconds=seconds)
    else:
        results.add(mutant, "killed", how=done.how, by=done.test, seconds=seconds)


def reasons(path: Path = REASONS) -> dict[tuple[str, str], str]:
    """Why a condition may survive: by the file and by the condition. Each line: path, condition, reason."""
    lines = path.read_text().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return {(file, condition): reason for file, condition, reason in rows}


def table(mutants: list[Mutant], results: Results, known_reasons: dict[tuple[str, str], str]) -> str:
    """What became of these mutants: Markdown, survivors first, and of these the ones without a reason."""
    found: list[tuple[str, Mutant, str]] = []
    for mutant in mutants:
        if mutant.number not in results.rows:
            continue
        row = results.rows[mutant.number]
        outcome, by = row["outcome"], ""
        reason = known_reasons.get((mutant.path, mutant.text))
        if outcome == "killed":
            by = f"{row['how']}: {row['by']}"
        elif reason:
            outcome, by = f"{outcome}, with a reason", reason
        elif outcome == "survived":
            by = f"{len(row['met'])} tests of {row['reaching']} that reach it"
        found.append((outcome, mutant, by))
    counts = Counter(outcome for outcome, _, _ in found)
    lines = [f"{len(found)} mutants: " + ", ".join(f"{n} {outcome}" for outcome, n in counts.most_common()) + ".", ""]
    lines += ["| mutant | place | condition, removed | outcome | by |", "|---|---|---|---|---|"]
    order = ("survived", "not reached", "survived, with a reason", "not reached, with a reason", "killed")
    for outcome, mutant, by in sorted(found, key=lambda row: (order.index(row[0]), *row[1][1:3])):
        cells = (f"`{mutant.text}` is {mutant.neutral} ({mutant.kind})", outcome, by)
        cells = tuple(cell.replace("|", "\\|") for cell in cells)
        lines.append(f"| {mutant.number} | {mutant.path}:{mutant.line} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def in_parallel(jobs: int, what: Callable[[T], None], of: list[T], deadline: float, title: str) -> None:
    """Do it for each, until the deadline, and say now and then how far it is."""
    begin = said = time.monotonic()
    done = 0

    def one(item: T) -> None:
        nonlocal said, done
        if time.monotonic() >= deadline:
            return
        what(item)
        done += 1
        now = time.monotonic()
        if now - said > 30:
            said = now
            print(f"mutants: {title}, {done} of {len(of)}, {now - begin:.0f} s", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, of))
    print(f"mutants: {title}, {done} of {len(of)}, {time.monotonic() - begin:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="how many mutants; 0 builds and records alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--of", default="", metavar="PATH", help="only conditions of this folder or file")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tests", nargs="+", default=list(TESTS), metavar="PATH", help="folders or files of tests")
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests that a mutant meets in a run")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop then; the same again goes on")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "mutants", help="where all is built and kept")
    parser.add_argument("--results", type=Path, help="by default results.jsonl in the folder of the build")
    parser.add_argument("--markdown", type=Path, help="by default results.md there")
    parser.add_argument("--list", action="store_true", help="print all mutants, and build nothing")
    parser.add_argument("--mutant", type=int, help="this one alone, with what pytest prints")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds

    build = Build(options.build.resolve(), deadline, of=options.of)
    chosen = [mutant for mutant in build.mutants if mutant.path.startswith(options.of)]
    if options.list:
        for mutant in chosen:
            print(*mutant)
        return 0
    if options.mutant is not None and build.mutants[options.mutant] not in chosen:
        parser.error(
            f"--mutant {options.mutant}: expected one of {options.of}, got {build.mutants[options.mutant].path}"
        )
    build.compile()
    files = [str(p.relative_to(ROOT)) for name in options.tests for p in _files_of_tests(ROOT / name)]
    files.sort(key=lambda file: -(ROOT / file).stat().st_size)  # the long ones first
    in_parallel(options.jobs, build.record, files, deadline, "tests without a mutant")
    missing = [file for file in files if not build.is_recorded(file)]
    if missing:
        print(f"mutants: {len(missing)} files of tests are not recorded yet: run this again")
        return 1
    tests = build.tests_of(files)

    if options.mutant is not None:
        return _alone(build, build.mutants[options.mutant], tests, options.budget)
    mutants = drawn(chosen, options.count, options.seed)
    results = Results(options.results or build.folder / "results.jsonl", build.mutants)
    in_parallel(
        options.jobs, lambda m: try_mutant(build, results, m, tests, options.budget), mutants, deadline, "mutants"
    )
    text = table(mutants, results, reasons())
    (options.markdown or build.folder / "results.md").write_text(text)
    print(f"mutants: {text.splitlines()[0]}")
    return 0


def _files_of_tests(path: Path) -> list[Path]:
    return sorted(path.rglob("test_*.py")) if path.is_dir() else [path]


def _alone(build: Build, mutant: Mutant, tests: list[Passing], budget: float) -> int:
    reaching = in_order(mutant, tests)
    print(*mutant)
    some = within(budget, reaching)
    print(f"{len(reaching)} tests reach it, {len(some)} run")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as chosen:
        chosen.write("".join(test.name + "\n" for test in some))
        chosen.flush()
        files = dict.fromkeys(test.file for test in some)
        done = build.pytest(files, ["-x"], 600, MUTANT_CHOSEN=str(mutant.number), MUTANT_TESTS=chosen.name)
    print(done.output)
    print(f"{done.how}: {done.test}")
    return 0 if done.how != "passed" else 1


if __name__ == "__main__":
    sys.exit(main())
