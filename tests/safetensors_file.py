"""Writes a file of safetensors, byte by byte."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

_NAMES = {torch.int32: "I32", torch.float16: "F16", torch.float32: "F32"}


def write_safetensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write these, in their order."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        own = tensor.contiguous().numpy().tobytes()
        offsets = [len(data), len(data) + len(own)]
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
        data += own
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
