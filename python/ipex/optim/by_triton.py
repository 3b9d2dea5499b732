"""The step of parameters on an NVIDIA GPU, by kernels of our own: one launch for all parameters of a format.

torch has no fused step for masters, Adagrad, Lamb and Lars. Where triton is not installed, torch's ops over lists of
tensors take these. For 16-bit weights of SGD and Adam they are a little faster on an H200 (docs/measurements/h200.md),
but hold all gradients in float32, and split weights too, which these kernels never do.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

BLOCK = 1024  # elements of a program
WARPS = 4
# Sums of blocks that a program adds up at a time.
SUMS = 1024

# Columns of the parameters' table that tests for the same blocks compare.
COUNT, FORMAT = 6, 8


@cache
def has_kernels(device: torch.device) -> bool:
    """Return whether steps on this device are ours."""
    return (
        device.type == "cuda"
        and torch.version.cuda is not None
        and find_spec("triton") is not None
        and torch.cuda.get_device_capability(device) >= (7, 0)
    )


class Blocks:
    """The programs of a launch, for parameters of certain sizes and formats."""

    def __init__(self, table: Tensor, device: torch.device) -> None:
        self.sizes = table[:, [COUNT, FORMAT]].clone()
        counts, formats = self.sizes.unbind(1)
        per_parameter = (counts + BLOCK - 1) // BLOCK
        found, ranges, total = [], torch.zeros(len(table), 2, dtype=torch.int64), 0
        self.by_format: list[tuple[int, int, int]] = []  # format, its first block, how many
        for format in formats.unique().tolist():
            own = (formats == format).nonzero()[:, 0]
            ends = per_parameter[own].cumsum(0)
            ranges[own, 0], ranges[own, 1] = total + ends - per_parameter[own], total + ends
            count = int(ends[-1])
            parameter = own.repeat_interleave(per_parameter[own])
            within = torch.arange(total, total + count) - ranges[parameter, 0]
            found.append(torch.stack([parameter, within], 1))
            if count:
                self.by_format.append((format, total, count))
            total += count
        self.count = total
        self.table = torch.cat(found).to(device=device, dtype=torch.int32)
        self.ranges = ranges.to(device)

    def fits(self, table: Tensor) -> bool:
        """Whether these are the blocks of such parameters."""
        return torch.equal(table[:, [COUNT, FORMAT]], self.sizes)


class DeviceStep:
    """Steps on one GPU. Keeps on it what doesn't change from step to step."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._blocks: Blocks | None = None
        self._on_host = torch.empty(0, dtype=torch.int64)
        self._on_device = self._on_host
        self._one = torch.ones(1, dtype=torch.float64, device=device)

    def __call__(self, kernels: Any, name: str, options: list[float]) -> None:
        """Update what `kernels`, a TrainedParameters, has collected."""
        with torch.cuda.device(self.device if self.device.type == "cuda" else -1):
            parameters, numbers = kernels.begin_on_device(name, options)
            if len(parameters):
                self._launch(name, parameters, numbers)
            kernels.finish_on_device()

    def _launch(self, name: str, parameters: Tensor, numbers: Tensor) -> None:
        from . import triton_kernels as own

        if self._blocks is None or not self._blocks.fits(parameters):
            self._blocks = Blocks(parameters, self.device)
        if not torch.equal(parameters, self._on_host):
            self._on_host, self._on_device = parameters, self._upload(parameters)
        tables = (self._on_device, self._upload(numbers))
        width = numbers.size(1)
        if name not in ("lamb", "lars"):
            function = {"sgd": own.update_sgd, "adagrad": own.update_adagrad, "adam": own.update_adam}[name]
            self._step(function, tables, self._one, width)
            return
        first, trust, last = (
            (own.lamb_moments, own.lamb_trust, own.update_lamb_weight)
            if name == "lamb"
            else (own.lars_norms, own.lars_trust, own.update_sgd)
        )
        sums = torch.empty(self._blocks.count, 2, dtype=torch.float64, device=self.device)
        trusts = torch.empty(len(parameters), dtype=torch.float64, device=self.device)
        self._step(first, tables, sums, width, per_block=2)
        trust[(len(parameters),)](*tables, sums, self._blocks.ranges, trusts, width, SUMS, enable_fp_fusion=False)
        self._step(last, tables, trusts, width, per_parameter=1)

    def _step(
        self,
        function: Any,
        tables: tuple[Tensor, Tensor],
        beside: Tensor,
        width: int,
        per_parameter: int = 0,
        per_block: int = 0,
    ) -> None:
        from . import triton_kernels as own

        assert self._blocks is not None
        for format, first, count in self._blocks.by_format:
            blocks = self._blocks.table[first:]
            to = beside[first:] if per_block else beside
            constants = (function, per_parameter, per_block, format, width, BLOCK)
            own.step[(count,)](*tables, blocks, to, *constants, num_warps=WARPS, enable_fp_fusion=False)

    def _upload(self, table: Tensor) -> Tensor:
        if self.device.type == "cpu":  # triton's interpreter
            return table
        return table.pin_memory().to(self.device, non_blocking=True)
