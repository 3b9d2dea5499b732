"""Loads the compiled part, and says what to do when it doesn't fit the torch that is installed."""

from importlib.metadata import requires

import torch

_ADVICE = "Build it against this torch: pip install --no-build-isolation --force-reinstall --no-deps <ipex sources>"


def _refuse_another_torch() -> None:
    # Of a wheel. The libraries look themselves, but can only end the process: runtime/torch_version.cpp.
    series = next((r.split("==")[1] for r in requires("ipex") or () if r.startswith("torch==")), None)
    if series is not None and not f"{torch.__version__}.".startswith(series.rstrip("*")):
        raise ImportError(
            f"ipex: expected a build for the installed torch {torch.__version__}, got one for {series}. {_ADVICE}"
        )


_refuse_another_torch()
try:
    from . import _C
except ImportError as error:
    raise ImportError(
        f"ipex: expected a build for the installed torch {torch.__version__}, got one that does not load ({error}). "
        f"{_ADVICE}"
    ) from error

__all__ = ["_C"]
