"""The torch that a wheel requires: the minor version it is built against, whichever that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def dynamic_metadata(field: str, settings: Mapping[str, Any] | None = None, *_: Any) -> list[str]:
    """Return the dependencies, for scikit-build-core."""
    import torch

    if field != "dependencies":
        raise RuntimeError(f"ipex: expected to be asked for 'dependencies', got {field!r}.")
    major, minor = torch.__version__.split(".")[:2]
    return [f"torch=={major}.{minor}.*"]


def get_requires_for_dynamic_metadata(_settings: Mapping[str, Any] | None = None) -> list[str]:
    """Return nothing: torch is a build requirement already."""
    return []
