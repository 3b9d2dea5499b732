"""What changes the whole process: off until asked for, and reversible."""

from collections.abc import Iterator
from contextlib import contextmanager

from ._load_extension import _C


def register_jit_passes() -> None:
    """Make every frozen module in the process go through ipex's passes when TorchScript first compiles it.

    For programs that can't call `jit_optimize` themselves. It holds packed weights beside the plain ones and packs
    them in every process, so prefer `jit_optimize` where the model is at hand. Models that ran before are not touched.
    """
    _C.register_jit_passes()


def unregister_jit_passes() -> None:
    """Leave models alone that TorchScript compiles from now on."""
    _C.unregister_jit_passes()


@contextmanager
def jit_passes() -> Iterator[None]:
    """Register the passes for the length of a `with` block."""
    register_jit_passes()
    try:
        yield
    finally:
        unregister_jit_passes()
