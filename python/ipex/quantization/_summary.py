"""Scales of a prepared model in a file: calibrated in one process, used in another."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ._scales import Scale

_KEY, _FORMAT = "ipex_scales", 1


def write(path: str | Path, scales: Mapping[str, Scale]) -> None:
    """Write them as JSON."""
    rows = {
        key: [one.scale, one.zero_point, None if one.factors is None else one.factors.tolist()]
        for key, one in scales.items()
    }
    Path(path).write_text(json.dumps({_KEY: _FORMAT, "scales": rows}))


def read(path: str | Path, channels: Mapping[str, int], caller: str) -> dict[str, Scale]:
    """Return the scales of a file. It must have those of these observers, which have so many channels to smooth."""
    try:
        content = json.loads(Path(path).read_text())
    except (ValueError, RecursionError) as error:
        raise _refused(caller, path, f"{type(error).__name__}: {str(error)[:100]}") from None
    rows = content.get("scales") if isinstance(content, dict) and content.get(_KEY) == _FORMAT else None
    if not isinstance(rows, dict):
        raise _refused(caller, path, "something else")
    if rows.keys() != channels.keys():
        strange = sorted(rows.keys() ^ channels.keys())[0]
        raise ValueError(
            f"ipex.{caller}: expected the scales of this model in {path}, got those of another, which differ at "
            f"{strange!r}. Calibrate it with this recipe and these versions of torch and transformers."
        )
    return {key: _scale(row, channels[key], key, path, caller) for key, row in rows.items()}


def _scale(row: Any, channels: int, key: str, path: str | Path, caller: str) -> Scale:
    scale, zero_point, factors = row if isinstance(row, list) and len(row) == 3 else (0.0, 0, None)
    if not _is_positive(scale) or type(zero_point) is not int or not 0 <= zero_point <= 255:
        raise _refused(caller, path, f"a wrong scale at {key!r}")
    if factors is None:
        return Scale(scale, zero_point)
    if not isinstance(factors, list) or len(factors) != channels or not all(map(_is_positive, factors)):
        raise _refused(caller, path, f"wrong factors at {key!r}")
    return Scale(scale, zero_point, torch.tensor(factors, dtype=torch.float32))


def _is_positive(value: Any) -> bool:
    """Of a float32 too: nothing that becomes zero or infinity."""
    is_number = type(value) in (int, float)
    return is_number and math.isfinite(value) and 0 < float(torch.tensor(float(value))) < math.inf


def _refused(caller: str, path: str | Path, got: str) -> ValueError:
    return ValueError(
        f"ipex.{caller}: expected a file that save_qconf_summary wrote, got {got} in {path}. Calibrate the model again."
    )
