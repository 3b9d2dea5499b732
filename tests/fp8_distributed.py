"""One of two processes with an FP8 linear: python tests/fp8_distributed.py GROUP RANK FILE. Prints its scales.

FILE is where the processes meet. GROUP is "world", where nobody names a group; "given"; or "apart", of a recipe that
does not reduce.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

from ipex.quantization.fp8 import DelayedScaling, fp8_autocast, prepare_fp8


def main() -> None:
    kind, rank, file = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    group = dist.new_group([0, 1]) if kind == "given" else None
    linear = prepare_fp8(nn.Linear(2, 2))
    nn.init.constant_(linear.weight, 4)
    for _ in range(2):
        with fp8_autocast(enabled=True, fp8_recipe=DelayedScaling(reduce_amax=kind != "apart"), fp8_group=group):
            y = linear(torch.full((3, 2), rank + 1.0))
        y.backward(torch.full((3, 2), 8.0 * (rank + 1)))
    print(linear.fp8_scales.scale.tolist(), flush=True)
    dist.barrier()
    # A thread of gloo may still be there when Python takes torch down, and then ends the process as a crash would.
    os._exit(0)


if __name__ == "__main__":
    main()
