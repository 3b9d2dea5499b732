"""Every thread keeps scratch memory for its next call, and all together not more than 8 MiB per core."""

from __future__ import annotations

import os
import subprocess
import sys

# As many threads as asked for call a model and stay: one after the other, so that no two need scratch memory at once.
# The convolution runs by Winograd's algorithm, in three quarters of a MiB.
PROGRAM = """
import gc, os, sys, threading
import torch, ipex
torch.set_grad_enabled(False)
torch.set_num_threads(1)
model = torch.nn.Conv2d(64, 64, 3, padding=1).eval()
x = torch.randn(1, 64, 24, 24).to(memory_format=torch.channels_last)
optimized = ipex.jit_optimize(torch.jit.trace(model, x))
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
turn, leave = threading.Lock(), threading.Event()
def run():
    with turn:
        optimized(x)
    ready.release()
    leave.wait()
ready = threading.Semaphore(0)
def start(count):
    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for _ in threads:
        ready.acquire()
    return threads
threads = start(4)
before = resident()
threads += start(int(sys.argv[1]))
print(resident() - before)
leave.set()
for thread in threads:
    thread.join()
print(torch.allclose(optimized(x), model(x), atol=1e-3))
"""


def test_many_threads_keep_little_between_them():
    cores = os.cpu_count() or 1
    threads = 32 * max(6, cores)  # three times what they may keep
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(threads)], capture_output=True, text=True, check=True
    )
    grown, is_right = done.stdout.split()
    assert is_right == "True"
    stacks = 0.15 * threads
    assert float(grown) < 8 * cores + stacks
