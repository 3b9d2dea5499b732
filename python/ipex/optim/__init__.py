"""Optimizers of our own, and what `ipex.optimize` does with those of torch: docs/training.md."""

from .lamb import Lamb
from .lars import Lars

__all__ = ["Lamb", "Lars"]


def __dir__() -> list[str]:
    return __all__
