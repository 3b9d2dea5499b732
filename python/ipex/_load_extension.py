"""Loads the compiled part, and says what to do when it doesn't fit the torch that is installed."""

import torch

try:
    from . import _C
except ImportError as error:
    raise ImportError(
        f"ipex: expected a build for the installed torch {torch.__version__}, got one that does not load ({error}). "
        "Build it against this torch: pip install --no-build-isolation --force-reinstall --no-deps <ipex sources>"
    ) from error

__all__ = ["_C"]
