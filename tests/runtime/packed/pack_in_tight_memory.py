"""Packs a model while memory is limited, calls it again without a limit, and says how both went.

One process per limit, from one under which nothing is packed to one under which all is. The second call comes from
another thread: in the first one oneDNN goes on failing.
"""

import os
import resource
import sys
from concurrent.futures import ThreadPoolExecutor

import torch

import ipex

torch.set_grad_enabled(False)
torch.set_num_threads(1)
model, expected = sys.argv[1], torch.load(sys.argv[2])
x = torch.ones(1, 2048)


def address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def outcome(margin: int) -> str:
    loaded = ipex.load(model)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + margin, hard))
    first = call(loaded)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    with ThreadPoolExecutor(1) as pool:
        return f"{first}, then {pool.submit(call, loaded).result()}"


def call(loaded: torch.jit.ScriptModule) -> str:
    torch.set_grad_enabled(False)
    try:
        return "right" if torch.allclose(loaded(x), expected, rtol=1e-4, atol=1e-4) else "wrong"
    except RuntimeError as error:
        return "lost" if "a part of the weight is lost" in str(error) else "another error"


ipex.load(model)  # what is allocated at the first use is there
weight = 2048 * 16384 * 4
for margin in range(weight + (2 << 20), weight + (12 << 20), 1 << 18):
    child = os.fork()
    if child == 0:
        print(outcome(margin), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(f"a margin of {margin} bytes ended the process")
