"""A pool of streams: results, errors, order; what it must leave alone; which CPUs streams get on other machines."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex import _C


class Model(nn.Module):
    """Two packed ops, two inputs, a tuple of results."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(96, 512), nn.Linear(512, 8)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = self.second(self.first(x).relu())
        return z, z + y


class Slow(nn.Module):
    """As many products as the second input says, and an error where it is negative."""

    def forward(self, x: Tensor, times: int) -> Tensor:
        if times < 0:
            raise ValueError("expected times to be positive")
        for _ in range(times):
            x = torch.mm(x, x).tanh()
        return x


@pytest.fixture(scope="module")
def model():
    return ipex.jit_optimize(Model().eval(), (torch.randn(3, 96), torch.randn(3, 8)))


@pytest.fixture(scope="module")
def slow():
    return torch.jit.script(Slow().eval())


@pytest.mark.parametrize(("streams", "threads"), [(1, 1), (2, 1), (1, 2), (3, 4)])
def test_gives_each_caller_its_own_results(model, streams, threads):
    inputs = [(torch.randn(1 + i % 9, 96), torch.randn(8)) for i in range(60)]
    with torch.no_grad():
        expected = [model(*given) for given in inputs]
    with ipex.StreamPool(model, streams=streams, threads_per_stream=threads, max_queue=4) as pool:
        assert (pool.streams, pool.threads_per_stream) == (streams, threads)

        def submit_and_wait(given):
            return pool.submit(*given).result()

        with ThreadPoolExecutor(4) as callers:
            answers = list(callers.map(submit_and_wait, inputs))
        answers_of_map = list(pool.map(iter(inputs)))
        answer_of_call = pool(*inputs[0])
    for got in (answers, answers_of_map, [answer_of_call, *expected[1:]]):
        assert all(torch.equal(a, b) for given, want in zip(got, expected) for a, b in zip(given, want))
        assert len(got) == len(expected)
    assert not answers[0][0].requires_grad


def test_an_error_is_raised_by_the_future_and_the_stream_lives_on(slow):
    x = torch.eye(2)
    with ipex.StreamPool(slow, streams=1) as pool:
        failing, good = pool.submit(x, -1), pool.submit(x, 0)
        with pytest.raises(torch.jit.Error, match="expected times to be positive"):
            failing.result()
        assert torch.equal(good.result(), x)
        with pytest.raises(RuntimeError, match="mat1"):
            pool(torch.ones(2, 3), 1)
        with pytest.raises(TypeError, match=r"ipex.StreamPool: expected at most 2 inputs, as forward takes, got 3\."):
            pool.submit(x, 1, 2)
        with pytest.raises(RuntimeError):
            pool(x)  # torch says what is missing


def test_waits_where_the_queue_is_full_and_answers_all_that_is_queued_when_closed(slow):
    x = torch.randn(256, 256)
    pool = ipex.StreamPool(slow, streams=1, max_queue=2)
    done: list[int] = []
    futures = []
    for i in range(8):
        future = pool.submit(x, 40)
        future.add_done_callback(lambda _, i=i: done.append(i))
        futures.append(future)
        # One is computed, two wait: all before have been answered, but for the one whose answer is on its way.
        assert sum(not f.done() for f in futures) <= 4
    pool.close()
    assert done == list(range(8))
    with pytest.raises(RuntimeError, match=r"expected an open pool, got a closed one. Make a new one\."):
        pool.submit(x, 1)
    pool.close()


def test_ends_the_idle_team_of_the_thread_that_makes_it(model):
    def tasks() -> set[str]:
        return set(os.listdir("/proc/self/task"))

    def compute_with_a_team() -> None:
        large.sum()  # in a parallel region
        with_team = tasks() - before
        assert len(with_team) == 4  # with this thread
        with ipex.StreamPool(model, streams=1, threads_per_stream=2) as pool:
            assert len(tasks() & with_team) == 1
            assert torch.equal(pool(*inputs)[0], expected)
        assert large.sum() == large.numel()  # with a new team

    large, inputs = torch.ones(1 << 20), (torch.randn(3, 96), torch.randn(3, 8))
    with torch.no_grad():
        expected = model(*inputs)[0]
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    before = tasks()
    try:
        with ThreadPoolExecutor(1) as maker:
            maker.submit(compute_with_a_team).result()
    finally:
        torch.set_num_threads(threads)


def test_python_runs_while_streams_compute(slow):
    with ipex.StreamPool(slow, streams=1) as pool:
        future = pool.submit(torch.randn(384, 384), 60)
        turns = 0
        while not future.done():
            turns += 1
        assert turns > 1000


def test_in_asyncio(model):
    x, y = torch.randn(2, 96), torch.randn(2, 8)

    async def ask(pool):
        answers = await asyncio.gather(*(asyncio.wrap_future(pool.submit(x, y)) for _ in range(5)))
        return [first for first, _ in answers]

    with torch.no_grad(), ipex.StreamPool(model, streams=2) as pool:
        assert all(torch.equal(first, model(x, y)[0]) for first in asyncio.run(ask(pool)))


def test_the_callers_threads_stay_as_they_are(model):
    before = os.sched_getaffinity(0), torch.get_num_threads()
    with ipex.StreamPool(model, streams=2, threads_per_stream=1) as pool:
        pool(torch.randn(2, 96), torch.randn(2, 8))
        assert (os.sched_getaffinity(0), torch.get_num_threads()) == before
        with ThreadPoolExecutor(1) as started_later:
            assert started_later.submit(torch.get_num_threads).result() == before[1]
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before


def threads_of_streams() -> dict[str, set[int]]:
    """The CPUs of this process's threads that streams have started, by thread."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        name = (task / "comm").read_text().strip()
        if name.startswith("ipex stream"):
            found[task.name] = os.sched_getaffinity(int(task.name))
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU has nothing to share out")
@pytest.mark.parametrize(("streams", "threads"), [(2, 1), (1, 2)])
def test_each_thread_stays_on_its_cpus(model, streams, threads):
    with ipex.StreamPool(model, streams=streams, threads_per_stream=threads) as pool:
        pool(torch.randn(4096, 96), torch.randn(4096, 8))
        assert Counter(map(len, pool.cpus)) == {threads: streams}
        allowed = list(threads_of_streams().values())
        assert len(allowed) == streams * threads
        for own in pool.cpus:
            assert set(own) in allowed  # the stream's own thread
            assert all({cpu} in allowed for cpu in own[1:])  # those that share its blocks
    with ipex.StreamPool(model, streams=streams, threads_per_stream=threads, pin=False) as pool:
        pool(torch.randn(2, 96), torch.randn(2, 8))
        assert pool.cpus == ()
        assert all(own == os.sched_getaffinity(0) for own in threads_of_streams().values())
    deadline = time.monotonic() + 10
    while threads_of_streams() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not threads_of_streams()


def test_ends_with_the_process_and_survives_a_fork():
    program = """
import os, torch, ipex
model = ipex.jit_optimize(torch.nn.Linear(8, 4).eval(), torch.randn(2, 8))
pool = ipex.StreamPool(model, streams=2)
pool(torch.randn(2, 8))
child = os.fork()
if child == 0:
    try:
        pool.submit(torch.randn(2, 8))
    except RuntimeError as error:
        assert "from before a fork" in str(error)
        pool.close()
        del pool
        os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
futures = [pool.submit(torch.randn(2, 8)) for _ in range(20)]
print("the end")  # with requests in the queue, and without close
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "the end\n"), done.stderr


def test_a_pool_that_nobody_holds_ends(model):
    pool = ipex.StreamPool(model, streams=2)
    before = threading.active_count()
    assert threads_of_streams()
    del pool
    assert not threads_of_streams()
    assert threading.active_count() == before


IN_A_CALLBACK = """
import threading, torch, ipex
model, x = ipex.jit_optimize(torch.nn.Linear(8, 4).eval(), torch.randn(2, 8)), torch.randn(2, 8)
for act in (lambda pools: pools.clear(), lambda pools: pools[0].close()):
    pools, done = [ipex.StreamPool(model, streams=2)], threading.Event()
    answers = [pools[0].submit(x) for _ in range(20)]
    answers[0].add_done_callback(lambda _: (act(pools), done.set()))
    assert done.wait(60)
    assert all(answer.result(60).shape == (2, 4) for answer in answers)
"""


def test_a_callback_drops_and_closes_its_pool():
    command = [sys.executable, "-W", "ignore", "-c", IN_A_CALLBACK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_is_closed_by_several_threads_at_once(model):
    for _ in range(20):
        pool = ipex.StreamPool(model, streams=2)
        with ThreadPoolExecutor(8) as callers:
            list(callers.map(lambda _, pool=pool: pool.close(), range(8)))


@pytest.mark.parametrize("numbers", [(2**40, 2**40), (2**62, 4), (1, 2**40), (2**17, 1)])
def test_threads_have_a_bound(model, numbers):
    with pytest.raises(ValueError, match="expected at most 65536 threads in all, got"):
        ipex.StreamPool(model, streams=numbers[0], threads_per_stream=numbers[1])


@pytest.mark.parametrize("name", ["streams", "threads_per_stream", "max_queue"])
@pytest.mark.parametrize("wrong", [0, -1, 1.5])
def test_says_what_it_expects(model, name, wrong):
    with pytest.raises(ValueError, match=f"expected {name} to be a positive number or None, got {wrong}"):
        ipex.StreamPool(model, **{name: wrong})


def test_takes_script_modules_only():
    with pytest.raises(TypeError, match=r"ipex.StreamPool: expected a ScriptModule, got the nn.Module Linear"):
        ipex.StreamPool(nn.Linear(2, 2))


# 2 nodes of 4 cores, with 2 hyper-threads each, as Linux counts them: 0 to 7 are cores, 8 to 15 their second threads.
BIG = [(i, i % 8, i % 8 // 4) for i in range(16)]


def plan(streams, threads, cpus=BIG, pin=True, quota=16):
    return _C.plan_streams(streams, threads, pin, cpus, quota)


def test_by_default_each_core_is_a_stream():
    assert plan(0, 0) == (8, 1, [[0], [4], [1], [5], [2], [6], [3], [7]])


@pytest.mark.parametrize(
    ("asked", "found"), [((2, 0), (2, 4)), ((0, 4), (2, 4)), ((3, 0), (3, 2)), ((0, 3), (2, 3)), ((20, 0), (20, 1))]
)
def test_what_is_left_out_takes_the_cores_that_there_are(asked, found):
    assert plan(*asked)[:2] == found


def test_a_stream_stays_on_a_node_that_has_room():
    assert plan(2, 3)[2] == [[0, 1, 2], [4, 5, 6]]
    assert plan(1, 6)[2] == [[0, 1, 2, 3, 4, 5]]
    assert plan(2, 4)[2] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_hyper_threads_are_used_only_beyond_the_cores():
    assert plan(4, 4)[2] == [[0, 8, 1, 9], [4, 12, 5, 13], [2, 10, 3, 11], [6, 14, 7, 15]]
    assert plan(8, 1, cpus=[*BIG[8:], *BIG[:8]])[2] == plan(8, 1)[2]


def test_more_threads_than_cpus_are_not_pinned():
    assert plan(17, 1) == (17, 1, [])
    assert plan(2, 2, pin=False) == (2, 2, [])


def test_a_quota_bounds_what_ipex_chooses():
    assert plan(0, 0, quota=3)[:2] == (3, 1)
    assert plan(1, 0, quota=3)[:2] == (1, 3)
    assert plan(0, 0, quota=1)[:2] == (1, 1)


def test_no_cpu_has_two_threads():
    for streams in range(1, 17):
        for threads in range(1, 17):
            used = [cpu for own in plan(streams, threads)[2] for cpu in own]
            assert len(used) == len(set(used)) == (streams * threads if streams * threads <= 16 else 0)
