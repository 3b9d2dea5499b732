"""One process of a distributed training: python tests/train_distributed.py KIND RANK WORLD FILE.

FILE is where the processes meet; rank 0 leaves the weights in FILE.weights.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ipex.optim.prepare import prepare

STEPS = 8


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(24, 64), nn.LayerNorm(64), nn.Tanh(), nn.Linear(64, 7))


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(16, 24, generator=generator) for _ in range(STEPS)]


def round_start(own: nn.Module) -> None:
    """Write the weights to themselves in bfloat16, as DistributedDataParallel does when it sends them around."""
    with torch.no_grad():
        for linear in (own[0], own[3]):
            for parameter in linear.parameters():
                parameter.copy_(parameter.bfloat16())


def train(kind: str, rank: int, world: int, rounds_start: bool = False) -> dict[str, torch.Tensor]:
    """Return the weights after some steps, of which each process sees its share."""
    torch.manual_seed(0 if kind != "ddp_split_other_start" or rank == 0 else 1)
    own = model()
    low = kind in ("ddp_split", "ddp_split_other_start")
    if kind == "fsdp" and world > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(own, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.SGD(own.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-3)
    assert prepare(own, optimizer, torch.bfloat16 if low else torch.float32, True, True) == []
    if rounds_start:
        round_start(own)
    called = DistributedDataParallel(own) if world > 1 and kind != "fsdp" else own
    for batch in batches():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            loss = called(batch.chunk(world)[rank]).float().square().mean()
        loss.backward()
        optimizer.step()
    found = own.state_dict()
    if world == 1:
        return found
    if kind == "fsdp":
        found = {name: tensor.full_tensor() for name, tensor in found.items()}
    everyone: list[dict[str, torch.Tensor]] = [{}] * world
    dist.all_gather_object(everyone, found)
    for other in everyone:  # processes that drift apart would go unseen
        assert all(torch.equal(tensor, other[name]) for name, tensor in found.items())
    return found


def main() -> None:
    kind, rank, world, file = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    weights = train(kind, rank, world)
    if rank == 0:
        torch.save(weights, f"{file}.weights")
    dist.barrier()
    dist.destroy_process_group()
    # A thread of gloo may still be there when Python takes torch down, and then ends the process as a crash would.
    os._exit(0)


if __name__ == "__main__":
    main()
