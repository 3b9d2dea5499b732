"""How much of a long list of rows a test run takes."""

from __future__ import annotations

import os
import random
from collections.abc import Collection
from typing import TypeVar

Row = TypeVar("Row")


def sample(rows: Collection[Row], count: int) -> list[Row]:
    """Return `count` rows drawn by IPEX_FUZZ_SEED, or all of them in `make nightly`."""
    if "IPEX_NIGHTLY" in os.environ:
        return list(rows)
    return random.Random(os.environ.get("IPEX_FUZZ_SEED", "1")).sample(list(rows), count)
