"""Figures of our allocator are true: they are added up by hand here. docs/how_to/memory.md says what each means."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from random import Random

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_same

KEYS = (
    "allocated",
    "allocated_bytes",
    "segment",
    "reserved_bytes",
    "active",
    "active_bytes",
    "inactive_split",
    "inactive_split_bytes",
)
KIB, MIB = 1 << 10, 1 << 20


def block(nbytes: int) -> int:
    """Bytes of the block that holds so many: whole lines of 64 bytes, and one before."""
    return (nbytes + 63) // 64 * 64 + 64


def small_block(nbytes: int) -> int:
    """The same below 64 KiB: there are four sizes to each doubling."""
    lines = block(nbytes) // 64
    step = 1
    while lines > 8 * step:
        step *= 2
    return (lines + step - 1) // step * step * 64


def held(nbytes: int) -> int:
    return block(nbytes) if nbytes >= 64 * KIB else small_block(nbytes)


@pytest.fixture
def clean() -> Iterator[None]:
    """Leave nothing of other tests in the cache, and lift a limit."""
    gc.collect()
    ipex.empty_cache()
    ipex.reset_peak_memory_stats()
    ipex.reset_accumulated_memory_stats()
    yield
    ipex.set_memory_limit(None)


def optimized(model: nn.Module, x: Tensor) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        return ipex.jit_optimize(torch.jit.trace(model.eval(), x))


def change(before: dict[str, int], name: str) -> int:
    return ipex.memory_stats()[name] - before[name]


BY_HAND = """
import gc, sys, torch, ipex
sys.path[:0] = sys.argv[1:]
from test_statistics import block, held, KIB, MIB
torch.set_grad_enabled(False)
def figures(*names):
    stats = ipex.memory_stats()
    return tuple(stats[name] for name in names)
def is_(expected, *names):
    assert figures(*names) == expected, (expected, names, figures(*names))

assert set(ipex.memory_stats().values()) == {0}
# Tiles of AMX take scratch memory, which is counted too.
ipex.isa.limit(min(ipex.isa.current(), ipex.isa.Level.AVX512_BF16))
model = torch.nn.Sequential(torch.nn.Linear(256, 576), torch.nn.ReLU(), torch.nn.Linear(576, 192)).eval()
x = torch.randn(1024, 256)
ours = ipex.jit_optimize(torch.jit.trace(model, x))
weights = block(256 * 576 * 4) + block(576 * 192 * 4)
is_((2, 2, weights, weights), "allocated.all.current", "segment.all.current", "allocated_bytes.all.current",
    "reserved_bytes.all.current")

ipex.reset_peak_memory_stats()
y = ours(x)
between, result = block(1024 * 576 * 4), block(1024 * 192 * 4)
is_((3, weights + result), "allocated.all.current", "allocated_bytes.all.current")
is_((4, weights + between + result), "allocated.all.peak", "allocated_bytes.all.peak")
is_((1, between), "allocated.large_pool.peak", "allocated_bytes.large_pool.peak")
is_((0, 0), "allocated.large_pool.current", "allocated_bytes.large_pool.current")
is_((3, weights + result), "allocated.small_pool.current", "allocated_bytes.small_pool.current")
# A region for each pool is kept.
is_((4, weights + between + result), "segment.all.current", "reserved_bytes.all.current")
is_((1, between), "segment.large_pool.current", "reserved_bytes.large_pool.current")

few = ours(x[:2])
small = held(2 * 192 * 4)
is_((4, weights + result + small), "allocated.all.current", "allocated_bytes.all.current")
is_((5, weights + between + result + small), "segment.all.current", "reserved_bytes.all.current")
del few
is_((3, 5), "allocated.all.current", "segment.all.current")  # the thread keeps it
allocated, freed = figures("allocated.all.allocated", "allocated.all.freed")
few = ours(x[:2])
is_((5, allocated + 1, freed), "segment.all.current", "allocated.all.allocated", "allocated.all.freed")

del y, few
is_((2, weights), "allocated.all.current", "allocated_bytes.all.current")
ipex.empty_cache()
is_((2, weights), "segment.all.current", "reserved_bytes.all.current")
ours(x)
del ours
gc.collect()
is_((0, 0, 0, 0), "allocated.all.current", "segment.all.current", "allocated_bytes.all.current",
    "reserved_bytes.all.current")
is_(figures("allocated_bytes.all.freed"), "allocated_bytes.all.allocated")
is_(figures("reserved_bytes.all.freed"), "reserved_bytes.all.allocated")
"""


def test_a_model_added_up_by_hand():
    here = os.path.dirname(__file__)
    command = [sys.executable, "-W", "ignore", "-c", BY_HAND, here, os.path.dirname(os.path.dirname(here))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_there_are_the_names_that_torch_has():
    stats = ipex.memory_stats()
    names = {
        f"{key}.{pool}.{moment}"
        for key in KEYS
        for pool in ("all", "large_pool", "small_pool")
        for moment in ("current", "peak", "allocated", "freed")
    }
    assert set(stats) == names | {"num_alloc_retries", "num_ooms", "num_kept", "kept_bytes"}
    nested = ipex.memory_stats_as_nested_dict()
    assert nested["num_ooms"] == stats["num_ooms"]
    assert {n: nested[k][p][m] for n in names for k, p, m in [n.split(".")]} == {n: stats[n] for n in names}


def check_against_snapshot(expected_bytes: int, expected_count: int, base: dict[str, int]) -> None:
    stats, segments = ipex.memory_stats(), ipex.memory_snapshot()
    blocks = [b for s in segments for b in s["blocks"]]
    for s in segments:
        assert sum(b["size"] for b in s["blocks"]) == s["total_size"]
        assert sum(b["size"] for b in s["blocks"] if b["state"] == "active_allocated") == s["allocated_size"]
    assert stats["reserved_bytes.all.current"] == sum(s["total_size"] for s in segments)
    assert stats["segment.all.current"] == len(segments)
    assert stats["segment.large_pool.current"] == sum(s["segment_type"] == "large" for s in segments)
    assert stats["allocated_bytes.all.current"] == sum(s["allocated_size"] for s in segments)
    assert stats["allocated.all.current"] == sum(b["state"] == "active_allocated" for b in blocks)
    gaps = [b["size"] for s in segments if s["allocated_size"] for b in s["blocks"] if b["state"] != "active_allocated"]
    assert stats["inactive_split.all.current"] == len(gaps)
    assert stats["inactive_split_bytes.all.current"] == sum(gaps)
    assert stats["allocated_bytes.all.current"] - base["allocated_bytes.all.current"] == expected_bytes
    assert stats["allocated.all.current"] - base["allocated.all.current"] == expected_count
    for key in KEYS:
        for moment in ("current", "allocated", "freed"):
            pools = (stats[f"{key}.{pool}.{moment}"] for pool in ("large_pool", "small_pool"))
            assert stats[f"{key}.all.{moment}"] == sum(pools), (key, moment)
        assert stats[f"{key}.all.peak"] >= stats[f"{key}.all.current"]


@pytest.mark.parametrize("seed", range(3))
def test_tensors_of_all_sizes_that_come_and_go(clean, seed):
    base, random, alive = ipex.memory_stats(), Random(seed), []
    with ipex.use_allocator():
        for step in range(300):
            size = int(2 ** random.uniform(0, 22))
            alive.append(torch.full((size,), step % 100, dtype=torch.uint8))
            if random.random() < 0.6 or len(alive) > 40:
                assert len(set(alive.pop(random.randrange(len(alive))).tolist()[:5])) == 1
            if step % 30 == 0:
                check_against_snapshot(sum(held(t.numel()) for t in alive), len(alive), base)
            if step == 150:
                ipex.empty_cache()
    for step, tensor in enumerate(alive):
        assert tensor.min() == tensor.max(), step
    del tensor
    alive.clear()
    check_against_snapshot(0, 0, base)


def test_the_large_pool_begins_at_one_mebibyte(clean):
    before = ipex.memory_stats()
    with ipex.use_allocator():
        below, from_here = torch.empty(MIB - 1, dtype=torch.uint8), torch.empty(MIB, dtype=torch.uint8)
    assert change(before, "allocated_bytes.small_pool.current") == block(below.numel())
    assert change(before, "allocated_bytes.large_pool.current") == block(from_here.numel())
    assert change(before, "allocated.large_pool.current") == 1


def test_peaks_and_sums_can_begin_anew(clean):
    with ipex.use_allocator():
        torch.empty(3 * MIB, dtype=torch.uint8)
        assert ipex.max_memory_allocated() >= ipex.memory_allocated() + 3 * MIB
        ipex.reset_peak_memory_stats()
        ipex.reset_accumulated_memory_stats()
        stats = ipex.memory_stats()
        for key in KEYS:
            for pool in ("all", "large_pool", "small_pool"):
                assert stats[f"{key}.{pool}.peak"] == stats[f"{key}.{pool}.current"]
                assert stats[f"{key}.{pool}.allocated"] == stats[f"{key}.{pool}.freed"] == 0
        torch.empty(2 * MIB, dtype=torch.uint8)
    stats = ipex.memory_stats()
    assert stats["allocated.all.allocated"] == stats["allocated.all.freed"] == 1
    assert stats["allocated_bytes.all.allocated"] == block(2 * MIB)


def test_the_functions_give_the_figures(clean):
    with ipex.use_allocator():
        tensor = torch.empty(3 * MIB, dtype=torch.uint8)
    stats = ipex.memory_stats()
    assert ipex.memory_allocated("cpu") == stats["allocated_bytes.all.current"] > tensor.numel()
    assert ipex.max_memory_allocated() == stats["allocated_bytes.all.peak"]
    assert ipex.memory_reserved(torch.device("cpu")) == stats["reserved_bytes.all.current"]
    assert ipex.max_memory_reserved() == stats["reserved_bytes.all.peak"]
    table = ipex.memory_summary()
    assert "reserved_bytes" in table
    assert "large_pool" in table
    assert "allocations failed" in table
    assert "large_pool" not in ipex.memory_summary(abbreviated=True)


def test_copies_of_a_weight_are_counted(clean):
    model, x = nn.Linear(640, 512, bias=False), torch.randn(1, 640)
    ours = optimized(model, x)
    before = ipex.memory_allocated()
    with torch.no_grad(), ipex.fp32_math_mode(ipex.FP32MathMode.BF32):
        ours(x)
    assert "bfloat16_copy_bytes=655360" in ours.packed_0.describe()
    assert ipex.memory_allocated() - before == block(640 * 512 * 2)


def test_a_winograd_weight_is_counted(clean):
    model, x = nn.Conv2d(64, 64, 3, padding=1), torch.randn(1, 64, 24, 24).to(memory_format=torch.channels_last)
    ours = optimized(model, x)
    before = {s["address"]: s for s in ipex.memory_snapshot()}
    with torch.no_grad():
        assert_same(ours(x), model(x))
    new = [s for s in ipex.memory_snapshot() if s["address"] not in before]
    assert [s["total_size"] for s in new if s["holder"] == "packed weights"] == [block(36 * 64 * 64 * 4)]


@pytest.mark.parametrize(
    ("quantize", "bits"), [("dynamic", 8), ("int8", 8), ("int4", 4), ("bfloat16", 16), ("float8_e5m2", 8)]
)
def test_weights_of_few_bits_are_counted(clean, quantize, bits):
    model, x = nn.Linear(1024, 512).eval(), torch.randn(4, 1024)
    before = ipex.memory_stats()
    if quantize == "dynamic":
        quantized = ipex.quantization.dynamic(model, x)
    else:
        quantized = ipex.quantization.weight_only(model, x, dtype=quantize)
    least = 1024 * 512 * bits // 8
    assert least < change(before, "allocated_bytes.all.current") < 1.2 * least
    del quantized
    gc.collect()
    assert change(before, "allocated_bytes.all.current") == 0


def test_recurrent_weights_and_results_are_counted(clean):
    model, x = nn.LSTM(64, 64), torch.randn(40, 8, 64)
    before = ipex.memory_stats()
    ours = optimized(model, x)
    assert change(before, "allocated_bytes.all.current") >= 2 * 4 * 64 * 64 * 4
    gc.collect()  # what tracing left
    before = ipex.memory_stats()
    with torch.no_grad():
        y = ours(x)[0]
    assert change(before, "allocated_bytes.all.current") >= held(y.nbytes)


def test_many_threads_lose_nothing(clean):
    model, x = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 300)), torch.randn(2, 64)
    ours = optimized(model, x)
    with torch.no_grad():
        ours(torch.randn(64, 64))  # some rows make tiles of a weight, which the model keeps
    before, kept = ipex.memory_stats(), []

    def serve(seed: int) -> None:
        with torch.no_grad():
            for i in range(200):
                y = ours(torch.randn(1 + (seed + i) % 90, 64))
                if i % 50 == 0:
                    kept.append(y)  # freed by another thread
                    ipex.memory_stats()
                if i == 100 and seed == 0:
                    ipex.empty_cache()

    threads = [threading.Thread(target=serve, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del thread
    threads.clear()
    expected = sum(held(y.nbytes) for y in kept)
    deadline = time.monotonic() + 10  # scratch memory goes when a thread has ended, a little after it can be joined
    while change(before, "allocated_bytes.all.current") != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    assert change(before, "allocated_bytes.all.current") == expected
    kept.clear()
    stats = ipex.memory_stats()
    assert stats["allocated_bytes.all.current"] == before["allocated_bytes.all.current"]
    for key in ("allocated", "allocated_bytes"):
        gone = stats[f"{key}.all.allocated"] - stats[f"{key}.all.freed"]
        assert gone == before[f"{key}.all.allocated"] - before[f"{key}.all.freed"]


FORK = """
import os, threading, torch, ipex
torch.set_num_threads(1)
torch.set_grad_enabled(False)
model, x = torch.nn.Linear(64, 64).eval(), torch.randn(2, 64)
ours = ipex.jit_optimize(torch.jit.trace(model, x))
# TorchScript's executor locks a model while it looks for its plan, and a fork may fall into that: the child runs
# a model that no thread of the parent runs.
childs = ipex.jit_optimize(torch.jit.trace(model, x))
childs(x)
done = False
def serve():
    while not done:
        ours(x)
        ipex.memory_stats()
threads = [threading.Thread(target=serve) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        childs(x)
        ipex.empty_cache()
        os._exit(0 if ipex.memory_stats()["allocated.all.current"] > 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
done = True
for thread in threads:
    thread.join()
"""


def test_a_forked_process_finds_the_allocator_whole():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_free_memory_of_the_machine(clean):
    free, total = ipex.mem_get_info()
    assert 0 < free <= total <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    ipex.set_memory_limit(ipex.memory_reserved() + 5 * MIB)
    assert ipex.mem_get_info() == (5 * MIB, ipex.get_memory_limit())


def test_other_devices_answer_with_torchs_numbers(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {"allocated_bytes.all.current": 7, "of": device})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1, 2))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    assert ipex.memory_stats("cuda:0")["of"] == "cuda:0"
    assert ipex.memory_allocated(torch.device("cuda")) == 7
    assert ipex.mem_get_info("cuda") == (1, 2)
    assert ipex.empty_cache("cuda") is None


@pytest.mark.parametrize("device", ["meta", "xpu" if not torch.xpu.is_available() else "mps"])
def test_devices_that_are_not_there(device):
    with pytest.raises(ValueError, match=rf"ipex.memory_stats: expected cpu, or .* that torch has, got '{device}'"):
        ipex.memory_stats(device)
