"""Some hundred random models, the same at every run unless IPEX_FUZZ_SEED says otherwise. `make fuzz` runs more."""

import os
import subprocess
import sys
from pathlib import Path

from fuzz.planted import NAMES
from sample import sample

RUN = [sys.executable, "-W", "ignore", Path(__file__).with_name("run.py")]
SEED = os.environ.get("IPEX_FUZZ_SEED", "1")


# In a process of their own: one that has computed with threads can't be forked.
def fuzz(*arguments):
    command = [*RUN, "--seed", SEED, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def test_random_models_match_eager(tmp_path):
    done = fuzz("--cases", "500", "--jobs", "2", "--failures", tmp_path)
    programs = [path.read_text() for path in tmp_path.iterdir()]
    print(f"IPEX_FUZZ_SEED={SEED}\n", done.stdout, *programs, sep="\n")
    assert done.returncode == 0
    assert "500 cases" in done.stdout


DYING = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from fuzz import run
lives = run.job
run.job = lambda *a: lives(*a) if a[1] else os.kill(os.getpid(), signal.SIGSEGV)
sys.exit(run.main(["--cases", "20", "--jobs", "2"]))
"""


def test_a_job_that_dies_is_told_and_the_others_go_on():
    code = DYING.format(tests=str(Path(__file__).parents[1]))
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "FAILED job 0, which draws cases, ended with SIGSEGV" in done.stdout
    assert "\n10 cases" in done.stdout


# What is computed from memory that was not written, or from the wrong list, may differ in anything that a caller sees.
ANYTHING = ("result", "input", "aliasing", "structure", "gradient", "raises", "does not raise", "state")
# Bugs that are put in on purpose, and what they show as.
PLANTED = {
    "alpha_dropped": "result value",
    "out_not_written": ANYTHING,
    "shape_not_written": ANYTHING,
    "piece_not_written": ANYTHING,
    "list_cut": ANYTHING,
    "list_as_built": ANYTHING,
    "dict_as_built": ANYTHING,
    "kept_copy": ANYTHING,
    "moved_past_write": ANYTHING,
    "spread_copied": ANYTHING,
    "view_copied": ANYTHING,
    "constant_written": ("result value", "state value", "raises"),
    "factors_alone": ("result value", "result nan or inf"),
    "numbers_decide": ("result dtype", "result shape"),
    "original_written": "original changed",
    "state_forgotten": ("state value", "result value"),
    "storage_parted": ("state value", "result value"),
    "methods_apart": ("state", "result value"),
    "memo_returned": ("result value", "aliasing"),
    "disabled_wrong": "result value",
    "shuffled_wrong": ("result value", "aliasing"),
    "verifier_refuses": "optimize raises",
    "nan_lost": "result nan or inf",
    "input_written": "input",
    "other_strides": ("result strides", "aliasing"),  # the latter where the result is a view
    "last_digits_wrong": "result value",
    "small_elements_wrong": "result value",
    "third_call_wrong": "result value",
    "two_threads_wrong": ("result value", "aliasing"),
    "float64_forgotten": "result dtype",
    "empty_batch_raises": "raises",
    "errors_swallowed": "does not raise",
    "copy_returned": "aliasing",
    "lost_when_saved": "save and load",
    "autocast_forgotten": ("result dtype", "raises"),  # the latter where two dtypes meet
    "given_dtype_too_coarse": "result value",
    "given_dtype_returned": "result dtype",
    "crash": "crash",
    "hang": "hang",
}


def test_every_bug_that_can_be_planted_is_in_the_list():
    assert PLANTED.keys() == set(NAMES[1:])


def test_finds_planted_bugs():
    bugs = sample(PLANTED, 8)
    lines = fuzz("--plant-each", *bugs, "--cases", "1000", "--jobs", "2").stdout.splitlines()
    found = dict(line.split(": ", 1) for line in lines if ": " in line)
    assert {bug: found[bug] for bug in bugs if not found[bug].startswith(PLANTED[bug])} == {}


def test_finds_nothing_where_nothing_is_wrong():
    done = fuzz("--plant", "nothing", "--cases", "150", "--jobs", "2")
    assert done.returncode == 0, done.stdout
    assert "\n150 cases" in done.stdout
