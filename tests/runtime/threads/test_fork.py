"""A process that forks while its threads run our ops gets a child that can run them: it inherits no locked lock.

The ops are called one by one: the lock of torch's executor, which every call of a model takes, does not survive a fork.
"""

from __future__ import annotations

import subprocess
import sys

# Large results, whose memory is shared out under a lock; shapes of which each is looked up in the caches.
PROGRAM = """
import os, signal, sys, threading, time
import torch, ipex
torch.set_grad_enabled(False)
torch.set_num_threads(2)
first, last = torch.nn.Conv2d(3, 16, 3), torch.nn.Conv2d(16, 32, 1)
def packed(layer, post_ops):
    geometry = (layer.stride, layer.padding, layer.dilation, layer.groups, False, [0, 0])
    return torch.ops.ipex.convolution_prepack(layer.weight, layer.bias, *geometry, post_ops, None, None, None)
contexts = packed(first, ["mish"]), packed(last, [])
memo, moves = torch.ops.ipex.shape_memo_prepack(), torch.ops.ipex.row_moves_prepack(["roll"], [2])
def optimized(x):
    for context in contexts:
        x = torch.ops.ipex.convolution_run(x, context, [], True)
    if not torch.ops.ipex.recall(memo, x.shape):
        torch.ops.ipex.remember(memo, x.shape, [torch.ones(1)])
    return torch.ops.ipex.move_rows(x, moves, [1, 2])
inputs = [torch.randn(1, 3, side, 24) for side in (70, 80, 90)]
expected = [last(torch.nn.functional.mish(first(x))).roll(1, 2) for x in inputs]
def are_close(x, y):  # without OpenMP's threads, which aten's ops have, and which do not survive a fork
    return all(abs(a - b) < 1e-4 for a, b in zip(x.flatten().tolist(), y.flatten().tolist()))
stop = False
def run():
    while not stop:
        for x in inputs:
            optimized(x)
workers = [threading.Thread(target=run, daemon=True) for _ in range(4)]
for worker in workers:
    worker.start()
failure = None
for i in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        try:
            found = [optimized(x) for x in inputs]
            good = all(are_close(x, y) for x, y in zip(found, expected))
            os._exit(0 if good else 1)
        except BaseException:
            os._exit(2)
    deadline = time.monotonic() + 20
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            status, failure = 0, f"child {i} hangs"
            break
        time.sleep(0.001)
    if status != 0:
        failure = f"child {i} ended with {status}"
    if failure:
        break
stop = True
for worker in workers:
    worker.join()
sys.exit(failure)
"""


def test_children_of_a_busy_process_run_the_model():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, "300"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# The parent has OpenMP's threads and has not had a region of ours.
PROGRAM_WITH_A_TEAM = """
import os, torch, ipex
torch.set_num_threads(1)
model = ipex.jit_optimize(torch.nn.Linear(256, 512).eval(), torch.randn(64, 256))
torch.set_num_threads(2)
(torch.randn(1 << 20) * 2).sum()
x = torch.randn(512, 256)
child = os.fork()
if child == 0:
    with torch.inference_mode():
        torch.ops.ipex.linear_run(x, model.packed_0, [], True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_the_child_of_a_process_with_a_team_of_openmp_s_waits_for_nobody():
    subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM_WITH_A_TEAM], check=True, timeout=60)
