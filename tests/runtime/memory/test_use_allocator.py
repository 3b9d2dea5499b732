"""With ipex.use_allocator() aten's tensors lie in our memory, too: those of this thread, in the block."""

from __future__ import annotations

import subprocess
import sys
import threading

import torch
from torch import Tensor, nn

import ipex
from support import assert_same

MIB = 1 << 20


class Sorted(nn.Module):
    """Between the linears stands an op that aten computes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 1024), nn.Linear(1024, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.sort(self.first(x))[0].cumsum(-1))


def allocations() -> int:
    return ipex.memory_stats()["allocated.all.allocated"]


def made_by(call) -> int:
    before = allocations()
    call()
    return allocations() - before


def test_atens_tensors_are_counted_and_right():
    model, x = Sorted().eval(), torch.randn(512, 64)
    ours = ipex.jit_optimize(torch.jit.trace(model, x))
    with torch.no_grad():
        for _ in range(3):
            ours(x)
        own = made_by(lambda: ours(x))
        with ipex.use_allocator():
            y = ours(x)
            everything = made_by(lambda: ours(x))
        assert everything >= own + 3  # sort makes two, cumsum one
        assert made_by(lambda: ours(x)) == own
        assert_same(y, model(x))


def test_it_holds_for_one_thread_and_may_be_nested():
    other: list[int] = []

    def make() -> None:
        other.append(made_by(lambda: torch.empty(MIB)))

    with ipex.use_allocator():
        with ipex.use_allocator():
            assert made_by(lambda: torch.empty(MIB)) == 1
        assert made_by(lambda: torch.empty(MIB)) == 1
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
    assert other == [0]
    assert made_by(lambda: torch.empty(MIB)) == 0


def test_another_thread_may_end_it():
    guard, is_begun, is_ended, after = ipex.use_allocator(), threading.Event(), threading.Event(), []

    def work() -> None:
        guard.__enter__()
        is_begun.set()
        is_ended.wait()
        after.append(made_by(lambda: torch.empty(MIB)))

    thread = threading.Thread(target=work)
    thread.start()
    is_begun.wait()
    guard.__exit__(None, None, None)
    assert made_by(lambda: torch.empty(MIB)) == 0
    with ipex.use_allocator():
        assert made_by(lambda: torch.empty(MIB)) == 1
    is_ended.set()
    thread.join()
    assert after == [0]


def test_tensors_outlive_the_block_and_are_as_any_other(tmp_path):
    with ipex.use_allocator():
        inside = torch.arange(100_000.0)
    outside = torch.arange(100_000.0)
    assert torch.equal(inside, outside)
    inside.resize_(200_000).fill_(1)
    assert inside.sum() == 200_000
    outside.resize_(200_000)
    with ipex.use_allocator():
        outside.resize_(300_000).fill_(2)
        assert outside.sum() == 600_000
    torch.save(inside, tmp_path / "inside.pt")
    assert torch.equal(torch.load(tmp_path / "inside.pt"), inside)
    assert torch.equal(torch.from_numpy(inside.numpy()), inside)
    empty = torch.empty(0)
    with ipex.use_allocator():
        assert torch.equal(torch.empty(0), empty)


# torch's oneDNN allocates raw memory, and gives back some of it while another allocator stands first.
RAW = """
import torch, ipex
torch.set_grad_enabled(False)
a = torch.randn(64, 64).to_mkldnn()
with ipex.use_allocator():
    b = torch.randn(64, 64).to_mkldnn()
    del a
    c = b + b
d = (c.to_dense() - 2 * b.to_dense()).abs().max()
del b, c
a = torch.randn(64, 64).to_mkldnn()
assert d == 0, d
"""


def test_raw_memory_goes_back_to_where_it_came_from():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", RAW], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
