"""Two processes train what one does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from train_distributed import model, train

SCRIPT = Path(__file__).parents[1] / "train_distributed.py"

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")


def trained(kind: str, world: int, folder: Path) -> dict[str, torch.Tensor]:
    file = folder / f"{kind}{world}"
    command = [sys.executable, str(SCRIPT), kind]
    running = [
        subprocess.Popen([*command, str(rank), str(world), str(file)], stderr=subprocess.PIPE, text=True)
        for rank in range(world)
    ]
    errors = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0] * world, "\n".join(errors)
    return torch.load(f"{file}.weights")


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """How far apart two trainings end, relative to the way of the first."""
    torch.manual_seed(0)
    start = model().state_dict()
    moved = sum(float((one[name] - start[name]).square().sum()) for name in one)
    return (sum(float((other[name] - one[name]).square().sum()) for name in one) / moved) ** 0.5


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_train_what_one_does(kind, tmp_path):
    # Sums over the batch in another order.
    assert distance(train(kind, 0, 1), trained(kind, 2, tmp_path)) < 1e-5


# In the second kind, the second process has other weights until it gets those of the first.
@pytest.mark.parametrize("kind", ["ddp_split", "ddp_split_other_start"])
def test_split_weights_in_two_processes_are_as_near_to_float32_as_in_one(kind, tmp_path):
    exact, one, two = train("ddp", 0, 1, True), train(kind, 0, 1, True), trained(kind, 2, tmp_path)
    assert {weight.dtype for weight in two.values()} == {torch.float32}
    print(kind, distance(exact, one), distance(exact, two))
    assert distance(exact, two) < 1.5 * distance(exact, one)
