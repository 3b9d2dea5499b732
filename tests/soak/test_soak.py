"""A sample of what `make soak` runs in full, and that it sees what it looks for."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from soak.footprint import MOST_KB_PER_CYCLE, Sample, rows
from soak.models import Subject, difference

RUN = [sys.executable, "-W", "ignore", Path(__file__).parent / "run.py"]
# Cycles that are done with soon, in which memory is soon as it stays.
SHORT = ["--kinds", "linear of 12 outputs", "--only", "load,call_under_inference_mode", "--cycles", "16"]


def soak(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *options], capture_output=True, text=True, check=False, timeout=600)


def test_every_action_gives_what_eager_does():
    """Of so few cycles memory tells nothing: what is made once is still being made."""
    done = soak("--cycles", "7", "--seed", os.environ.get("IPEX_FUZZ_SEED", "1"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "soak: 7 cycles" in done.stdout
    assert "0 wrong" in done.stdout


def test_memory_threads_and_descriptors_stay_when_a_model_is_loaded_called_and_dropped():
    done = soak(*SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("  ok") == 3


def test_what_is_planted_is_told():
    done = soak(*SHORT, "--plant", "leak,thread,descriptor")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"GROWS: more than {MOST_KB_PER_CYCLE:.0f} KB a cycle" in done.stdout
    assert done.stdout.count("GROWS: always more in the last quarter") == 2
    assert "0 wrong" in done.stdout


def test_a_wrong_result_is_told():
    done = soak("--kinds", "linear", "--only", "call_from_threads", "--cycles", "4", "--plant", "wrong")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG call_from_threads: linear: largest error" in done.stdout


def test_a_child_that_dies_is_told():
    done = soak("--kinds", "linear", "--only", "fork", "--cycles", "2", "--plant", "child")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "linear: SIGABRT" in done.stdout


def samples(memory: list[float], threads: list[int]) -> list[Sample]:
    return [Sample(2.0 * i, kilobytes, count, 6) for i, (kilobytes, count) in enumerate(zip(memory, threads))]


def test_the_first_half_and_noise_are_no_growth():
    draw = random.Random(1)
    warming = [300_000 + 4000 * min(i, 20) + draw.uniform(-500, 500) for i in range(80)]
    table = rows(samples(warming, [draw.choice([4, 5, 6]) for _ in warming]))
    assert [row.fault for row in table] == ["", "", ""]
    assert table[0].last - table[0].first > 30_000


def test_a_gap_in_the_heap_is_no_growth():
    memory = [300_000 + (4000 if i % 7 and i > 65 else 0) for i in range(80)]
    table = rows(samples(memory, [4] * 80))
    assert table[0].per_cycle > MOST_KB_PER_CYCLE
    assert [row.fault for row in table] == ["", "", ""]


def test_a_leak_in_noise_is_growth():
    draw = random.Random(1)
    leaking = [300_000 + 100 * i + draw.uniform(-500, 500) for i in range(80)]
    memory, threads, descriptors = rows(samples(leaking, [4 + i // 30 for i in range(80)]))
    assert memory.fault.startswith("GROWS")
    assert memory.per_cycle == pytest.approx(100, rel=0.1)
    assert memory.per_minute == pytest.approx(30 * memory.per_cycle)
    assert threads.fault.startswith("GROWS")
    assert not descriptors.fault


def test_a_result_of_other_values_shape_or_dtype_differs():
    x = torch.ones(3, 4)
    assert difference(x, x, 1e-5) == ""
    assert "largest error" in difference(x * 1.001, x, 1e-5)
    assert "largest error" in difference(x * torch.nan, x, 1e-5)
    assert "shape" in difference(x[:2], x, 1e-5)
    assert "dtype" in difference(x.double(), x, 1e-5)


def test_inputs_are_of_other_sizes_and_the_layout_of_the_example():
    example = torch.randn(1, 16, 12, 12).contiguous(memory_format=torch.channels_last)
    subject = Subject("convolution", torch.nn.Identity(), None, example, (0, 2, 3))
    drawn = [subject.input(random.Random(seed)) for seed in range(30)]
    assert len({x.shape for x in drawn}) > 15
    assert {x.shape[1] for x in drawn} == {16}
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x in drawn)
