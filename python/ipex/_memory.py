"""The memory that ipex's ops keep and hand out: results, scratch memory and packed weights.

Without a device, or with "cpu", figures are those of ipex's own allocator. For a `cuda` or `xpu` device they are what
torch says. docs/how_to/memory.md tells what each figure means.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from ._load_extension import _C

if TYPE_CHECKING:
    Device = torch.device | str | int | None

__all__ = [
    "empty_cache",
    "get_memory_limit",
    "mapped_bytes",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_memory_limit",
    "use_allocator",
]


def memory_stats(device: Device = None) -> dict[str, int]:
    """Return all figures, by names such as "allocated_bytes.large_pool.peak"."""
    if ask_torch := _of_torch("memory_stats", device):
        return dict(ask_torch(device))
    return OrderedDict(sorted(_C.memory_stats().items()))


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Return the same as nested dictionaries: stats["allocated_bytes"]["large_pool"]["peak"]."""
    if ask_torch := _of_torch("memory_stats_as_nested_dict", device):
        return dict(ask_torch(device))
    return _C.memory_stats_as_nested_dict()


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return a table of the figures, for people."""
    if ask_torch := _of_torch("memory_summary", device):
        return str(ask_torch(device, abbreviated))
    return _C.memory_summary(abbreviated)


def memory_snapshot(device: Device = None) -> list[dict[str, Any]]:
    """Return every segment that was taken from the system, with the blocks in it, in use or not."""
    if ask_torch := _of_torch("memory_snapshot", device):
        return list(ask_torch())
    return _C.memory_snapshot()


def mapped_bytes() -> int:
    """Return the bytes of files that `aot_load` has mapped.

    They are in no other figure: processes share them, and what nobody uses is not in memory.
    """
    return _C.mapped_bytes()


def memory_allocated(device: Device = None) -> int:
    """Return the bytes in use."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes that were in use at once."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: Device = None) -> int:
    """Return the bytes that were taken from the system, in use or kept for later."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes that were taken from the system at once."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Let peaks be those of what comes."""
    if ask_torch := _of_torch("reset_peak_memory_stats", device):
        ask_torch(device)
    else:
        _C.reset_peak_memory_stats()


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Let what was allocated and freed, retries and failures be counted from now on."""
    if ask_torch := _of_torch("reset_accumulated_memory_stats", device):
        ask_torch(device)
    else:
        _C.reset_accumulated_memory_stats()


def empty_cache(device: Device = None) -> None:
    """Give back to the system what is kept for later calls."""
    if ask_torch := _of_torch("empty_cache", device):
        ask_torch()
    else:
        _C.empty_cache()


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return how many bytes are free and how many there are.

    Of the machine, its control group and the limit, the least.
    """
    if ask_torch := _of_torch("mem_get_info", device):
        free, total = ask_torch(device)
        return free, total
    return _C.mem_get_info()


def set_memory_limit(limit: int | None) -> None:
    """Reserve no more bytes than this; None lifts the limit.

    An allocation beyond it empties the cache, tries once more, and then raises RuntimeError, which says who
    holds what. What is reserved already stays.
    """
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
        raise TypeError(f"ipex.set_memory_limit: expected a number of bytes or None, got {limit!r}. Give an int.")
    _C.set_memory_limit(limit)


def get_memory_limit() -> int | None:
    """Return the limit in bytes, None where there is none."""
    return _C.get_memory_limit()


def use_allocator() -> AbstractContextManager[None]:
    """Take all CPU tensors that this thread makes inside of the `with` block from ipex's allocator.

    Those of aten's ops in an optimised model, too: they are then kept between calls, counted and limited like results.
    They may outlive the block. The first use puts an allocator before torch's own, for good; for other threads and
    outside of a block it hands on to that.

    >>> with ipex.use_allocator():
    ...     y = torch.randn(8, 8) @ torch.randn(8, 8)
    """
    return _C.UseAllocator()


def _of_torch(function: str, device: Device) -> Callable[..., Any] | None:
    """Return torch's function of this name for a cuda or xpu device, and None for a CPU."""
    kind = "cpu" if device is None else torch.device(device).type
    if kind == "cpu":
        return None
    module = getattr(torch, kind, None) if kind in ("cuda", "xpu") else None
    if module is None or not module.is_available():
        raise ValueError(
            f"ipex.{function}: expected cpu, or a cuda or xpu device that torch has, got {device!r}. "
            "Leave the device out for the CPU."
        )
    if not hasattr(module, function):
        raise NotImplementedError(
            f"ipex.{function}: expected a torch with torch.{kind}.{function}, got {torch.__version__}. Upgrade torch."
        )
    return getattr(module, function)  # type: ignore[no-any-return]
