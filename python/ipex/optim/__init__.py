"""Optimizers of our own, and what `ipex.optimize` does with those of torch: docs/training.md."""

from .lamb import Lamb
from .lars import Lars
from .prepare import prepare as _prepare

__all__ = ["Lamb", "Lars", "_prepare"]
