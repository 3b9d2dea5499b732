"""What every backend of a model and batch shares: the model, its inputs, eager's outputs, the number of operations."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from .backends.backend import Job, tensors
from .subject import Subject


def write(subject: Subject, folder: Path) -> float:
    """Build the model, run it in eager, save all of it. Return the number of floating point operations."""
    model, inputs = subject.make()
    with torch.no_grad():
        expected = [x.clone() for x in tensors(model(*inputs))]
        operations = count_operations(model, inputs)
    if isinstance(model, torch.jit.ScriptModule):
        model.save(folder / "script.pt")
    else:
        torch.save(model, folder / "model.pt")
    torch.save((inputs, expected), folder / "data.pt")
    return operations


def read(folder: Path, threads: int) -> tuple[Job, list[Tensor]]:
    """Return the job, which loads the model when it is asked to, and eager's outputs."""

    def build() -> nn.Module:
        if (folder / "script.pt").exists():
            return torch.jit.load(folder / "script.pt")  # type: ignore[no-any-return]
        return torch.load(folder / "model.pt", weights_only=False)  # type: ignore[no-any-return]

    inputs, expected = torch.load(folder / "data.pt")
    return Job(build, inputs, threads, folder), expected


def count_operations(model: nn.Module, inputs: tuple[Tensor, ...]) -> float:
    """Count multiplications and additions of matrix products and convolutions.

    Without oneDNN and with attention spelt out, torch has no op that its counter does not know.
    """
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.set_flags(_enabled=False)  # flags() would warn of TF32
    try:
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            model(*inputs)
    finally:
        torch.backends.mkldnn.set_flags(_enabled=before)
    return float(counter.get_total_flops())


def largest_difference(actual: list[Tensor], expected: list[Tensor]) -> float:
    """Return the largest difference, relative to the largest element of the same output.

    It is infinite if shapes differ, or if NaN or infinity is where it should not be.
    """
    if len(actual) != len(expected):
        return float("inf")
    largest = 0.0
    for ours, theirs in zip(actual, expected):
        if ours.shape != theirs.shape:
            return float("inf")
        ours, theirs = ours.double(), theirs.double()
        finite = theirs.isfinite()
        same = torch.allclose(ours[~finite], theirs[~finite], rtol=0, atol=0, equal_nan=True)
        if not same or not ours[finite].isfinite().all():
            return float("inf")
        if finite.any():
            scale = theirs[finite].abs().max().item()
            difference = (ours - theirs)[finite].abs().max().item()
            largest = max(largest, difference / scale if scale else float(difference > 0))
    return largest
