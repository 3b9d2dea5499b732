"""Whether an optimised model computes what the original does: `ipex.verify`."""

from .verify import Verification, verify

__all__ = ["Verification", "verify"]
