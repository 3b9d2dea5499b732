"""Results get memory that earlier ones are done with, and are tensors as any other."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import threading
from random import Random

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_same

PAGE = resource.getpagesize()
MIB = 1 << 20


class Wide(nn.Module):
    """A 36 MiB result, which a second convolution takes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 96, 1), nn.Conv2d(96, 2, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


def image(side: int = 310) -> Tensor:
    """Channels-last: else the user gets a contiguous copy, which aten makes."""
    return torch.randn(1, 3, side, side).to(memory_format=torch.channels_last)


def optimized(model: nn.Module, x: Tensor) -> torch.jit.ScriptModule:
    return ipex.jit_optimize(torch.jit.trace(model.eval(), x))


def faults_of(call) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def faults_when_warm(model: torch.jit.ScriptModule, *inputs: Tensor) -> int:
    with torch.inference_mode():
        for _ in range(4):
            model(*inputs)
        return min(faults_of(lambda: model(*inputs)) for _ in range(5))


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


@pytest.fixture(scope="module")
def wide() -> torch.jit.ScriptModule:
    return optimized(Wide(), image())


def test_later_calls_bring_no_page_faults(wide):
    assert faults_when_warm(wide, image()) < 36 * MIB / PAGE / 10


class Joined(nn.Module):
    """A 38 MiB result of cat."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)

    def forward(self, x: Tensor, past: Tensor) -> Tensor:
        return torch.cat([past, self.conv(x)], 1)


class Restored(nn.Module):
    """A 36 MiB result, which its reader wants contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 96, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).flatten(1)


@pytest.mark.parametrize("model", [Joined(), Restored()], ids=["joined", "restored"])
def test_copies_bring_no_page_faults(model):
    x = torch.randn(1, 3, 310, 310)
    inputs = (x, torch.randn(1, 96, 310, 310)) if isinstance(model, Joined) else (x,)
    ours = ipex.jit_optimize(torch.jit.trace(model.eval(), inputs))
    assert faults_when_warm(ours, *inputs) < 36 * MIB / PAGE / 10


def test_results_in_use_are_left_alone():
    conv = nn.Conv2d(3, 96, 1)
    ours = optimized(conv, image())
    inputs = [image() for _ in range(4)]
    with torch.inference_mode():
        results = [ours(x) for x in inputs]
        for x, y in zip(inputs, results, strict=True):
            assert_same(y, conv(x))
        del results[1]
        again = ours(inputs[0])
        assert_same(again, conv(inputs[0]))
        for i, y in zip((0, 2, 3), results, strict=True):
            assert_same(y, conv(inputs[i]))
    assert len({y.data_ptr() for y in (*results, again)}) == 4


def test_results_of_all_sizes_are_kept_and_dropped_in_any_order():
    conv = nn.Conv2d(3, 32, 1)
    ours, random, alive = optimized(conv, image()), Random(0), []
    with torch.inference_mode():
        for _ in range(300):
            x = image(random.choice([20, 23, 40, 57, 64, 90, 128, 200]))
            alive.append((ours(x), conv(x)))
            if random.random() < 0.7 or len(alive) > 20:
                alive.pop(random.randrange(len(alive)))
            if random.random() < 0.05:
                alive.clear()
            for actual, expected in alive:
                assert_same(actual, expected)


def test_a_result_outlives_its_model():
    conv, x = nn.Conv2d(3, 96, 1), image()
    with torch.inference_mode():
        y = optimized(conv, x)(x)
        gc.collect()
        assert_same(y, conv(x))


def test_a_result_is_a_tensor_as_any_other(tmp_path):
    conv, x = nn.Conv2d(3, 96, 1), image()
    ours = optimized(conv, x)
    with torch.no_grad():
        expected = conv(x)
        y = ours(x)
        assert not y.is_inference()
        torch.save(y, tmp_path / "y.pt")
        assert_same(torch.load(tmp_path / "y.pt"), expected)
        assert_same(y.clone(), expected)
        y.add_(1)
        assert_same(y, expected + 1)
        y.resize_(2, 96, 310, 310)
        assert y.shape == (2, 96, 310, 310)
        y.fill_(3)
        assert_same(ours(x), expected)
    with torch.inference_mode():
        assert ours(x).is_inference()


LAST_MODEL = """
import gc, os, sys, torch, ipex
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
ours, x = ipex.load(sys.argv[1]), torch.randn(1, 3, 620, 620).to(memory_format=torch.channels_last)
with torch.inference_mode():
    for _ in range(4):
        held = ours(x)
if sys.argv[2] == "none held":
    del held
before = resident()
del ours
gc.collect()
print(before - resident())
"""


@pytest.mark.parametrize("held", ["none held", "one held"])
def test_nothing_is_kept_when_the_last_model_is_gone(wide, tmp_path, held):
    wide.save(tmp_path / "model.pt")
    command = [sys.executable, "-W", "ignore", "-c", LAST_MODEL, tmp_path / "model.pt", held]
    freed = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert freed > 100 * MIB  # of a result of 140


def test_sizes_that_change_do_not_add_up(wide):
    with torch.inference_mode():
        for side in (600, 610, 620, 630):
            wide(torch.randn(1, 3, side, side))
        before = resident_bytes()
        for side in range(560, 640, 4):
            wide(torch.randn(1, 3, side, side))
    assert resident_bytes() - before < 300 * MIB  # one result has about 140


def test_many_threads(wide):
    model, failed = Wide().eval(), []
    ours = optimized(model, image())

    def serve(seed: int) -> None:
        with torch.inference_mode():
            for i in range(3):
                x = torch.randn(1, 3, 310, 300 + seed, generator=torch.Generator().manual_seed(seed + i))
                try:
                    assert_same(ours(x), model(x))
                except AssertionError as error:
                    failed.append(error)

    threads = [threading.Thread(target=serve, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
