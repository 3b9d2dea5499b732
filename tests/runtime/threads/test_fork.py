"""A process that forks while its threads run a model gets a child that can run it: it inherits no locked lock."""

from __future__ import annotations

import subprocess
import sys

# Large results, whose memory is shared out under a lock; shapes of which each is looked up in the caches.
PROGRAM = """
import os, signal, sys, threading, time
import torch, ipex
torch.set_grad_enabled(False)
torch.set_num_threads(1)  # OpenMP's own threads do not survive a fork
model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Mish(), torch.nn.Conv2d(16, 32, 1)).eval()
inputs = [torch.randn(1, 3, side, 24) for side in (70, 80, 90)]
optimized = ipex.jit_optimize(torch.jit.trace(model, inputs[0]))
expected = [model(x) for x in inputs]
for x in 3 * inputs:  # torch's own executor holds a lock while it compiles, and leaves it locked in a child
    optimized(x)
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
            good = all(torch.allclose(optimized(x), y, atol=1e-4) for x, y in zip(inputs, expected))
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
