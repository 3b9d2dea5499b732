"""The commands that measure many cores and streams: a sample of what they run, and their arithmetic."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.many_cores import Kind, Run, table

ROOT = Path(__file__).parents[2]


def printed(command: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / command), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_limit_and_efficiency():
    one = Run(1, 10.0, 11.0, 1e9, 1e9, 0, 0.0, 0.0, {"a": Kind(2, 6.0, limit=3.0), "b": Kind(1, 2.0)})
    four = Run(4, 4.0, 5.0, 4e9, 2e9, 7, 3.0, 0.5, {"a": Kind(2, 2.0, limit=1.5), "b": Kind(1, 2.0)})
    rows = {line.split(" |")[0]: line for line in table("Model", [one, four])}
    assert rows["| a"] == "| a | 2 | 6.000 | 2.000 | 1.500 | 75% | 75% |"
    assert rows["| b"] == "| b | 1 | 2.000 | 2.000 |  |  | 25% |"
    assert rows["| a call, without the profiler"].endswith("| 1 | 10.000 | 4.000 | 1.500 | 38% | 62% |")
    assert rows["| between ops"].startswith("| between ops |  | 3.000 | 1.000 |")
    assert rows["| in regions"].startswith("| in regions | 7 | 0.000 | 3.000 |")
    assert rows["| of that waiting"].startswith("| of that waiting |  | 0.000 | 0.500 |")
    assert rows["| outside of regions"].startswith("| outside of regions |  | 10.000 | 1.000 |")


@pytest.mark.parametrize("more", [[], ["--by-size"]])
def test_times_of_kinds_of_ops(more):
    out = printed("many_cores.py", "tiny_mlp", "--threads", "1", "--calls", "3", "--seconds", "0.1", *more)
    assert re.search(r"^\| ipex::linear_chain_run.* \| 1 \| \d+\.\d+ \| \d+\.\d+ \| \d+% \|$", out, re.MULTILINE), out


def test_requests_per_second():
    ways = ["--ways", "one", "threads", "processes", "crowd"]
    out = printed(
        "streams.py", "tiny_mlp", "--cores", "2", "--plans", "2x1", "--rounds", "1", "--seconds", "0.2", *ways
    )
    found = re.findall(r"^\| (\w+ \d+x\d+) \| (\d+\.\d) \| (\d+\.\d+) \|$", out, re.MULTILINE)
    assert [way for way, _, _ in found] == ["pool 2x1", "one 1x2", "threads 2x1", "processes 2x1", "crowd 2x1"]
    assert found[0][2] == "1.00"
    assert all(float(rate) > 0 for _, rate, _ in found)
