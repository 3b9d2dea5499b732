"""What the allocator of C keeps of what was freed."""

from __future__ import annotations

import ctypes


def trim() -> None:
    """Give it back to the system, where the allocator is glibc's."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
