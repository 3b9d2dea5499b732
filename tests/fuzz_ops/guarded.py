"""Tensors whose memory ends, or begins, at a page that nobody may touch."""

from __future__ import annotations

import ctypes
import mmap
import random

import torch
from torch import Tensor

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_NO_ACCESS = 0


def guarded(tensor: Tensor, draw: random.Random) -> Tensor:
    """A copy with the same sizes, strides and dtype, in memory as small as it can be, between two such pages."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_neg():
        return tensor
    elements = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
    size = elements * tensor.element_size()
    inside = -(-max(size, 1) // _PAGE) * _PAGE
    memory = mmap.mmap(-1, inside + 2 * _PAGE)
    whole = torch.frombuffer(memory, dtype=torch.uint8)  # keeps the memory
    for page in (0, inside + _PAGE):
        _libc.mprotect(ctypes.c_void_p(whole.data_ptr() + page), ctypes.c_size_t(_PAGE), _NO_ACCESS)
    first = _PAGE if draw.random() < 0.3 else _PAGE + inside - size
    storage = torch.frombuffer(memory, dtype=torch.uint8, offset=first, count=max(size, 1)).untyped_storage()
    made = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, tensor.shape, tensor.stride())
    if tensor.numel():
        flat = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (elements,), (1,))
        flat.copy_(tensor.detach().as_strided((elements,), (1,), tensor.storage_offset()))
    made.guard = whole  # type: ignore[attr-defined]
    return made.requires_grad_() if tensor.requires_grad else made


def lies_in_its_storage(tensor: Tensor) -> bool:
    """Whether all elements of a result have memory."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.numel():
        return True
    last = tensor.storage_offset() + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size() <= tensor.untyped_storage().nbytes()
