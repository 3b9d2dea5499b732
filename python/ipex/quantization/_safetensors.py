"""Files of safetensors: eight bytes with the length of a JSON header, the header, and the tensors' bytes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_LARGEST_HEADER = 100_000_000


def read_safetensors(path: Path, caller: str) -> dict[str, Tensor]:
    """Return the tensors of a file. Raises ValueError where it is none, or was cut off."""
    with path.open("rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LARGEST_HEADER):
            raise _damaged(path, caller, f"a header of {length} bytes in a file of {size}")
        try:
            header: dict[str, Any] = json.loads(file.read(length))
            header.pop("__metadata__", None)
            return {name: _tensor(file, 8 + length, size, entry) for name, entry in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(path, caller, str(error)) from error


def _tensor(file: BinaryIO, first: int, file_size: int, entry: dict[str, Any]) -> Tensor:
    dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    size = math.prod(shape) * dtype.itemsize
    if end - begin != size or begin < 0 or first + end > file_size:
        raise ValueError(f"{size} bytes at {begin} to {end} of {file_size - first}")
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    file.seek(first + begin)
    return torch.frombuffer(bytearray(file.read(size)), dtype=dtype).reshape(shape)


def _damaged(path: Path, caller: str, found: str) -> ValueError:
    return ValueError(
        f"ipex.quantization.{caller}: expected a whole safetensors file at {path}, got {found}. Download it again."
    )
