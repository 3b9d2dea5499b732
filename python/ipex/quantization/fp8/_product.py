"""Rounding to 8-bit floats, and products of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..._torch_internals import scaled_mm

# cuBLAS wants a product's depth and its columns as multiples of it.
_MULTIPLE = 16
_KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def rounded(tensor: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `tensor * scale` in 8 bits. What is out of range becomes the largest number, what is not finite NaN."""
    largest = torch.finfo(dtype).max
    scaled = (tensor.float() * scale).clamp(-largest, largest)
    return scaled.masked_fill(~tensor.isfinite(), torch.nan).to(dtype)


def product(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, dtype: torch.dtype, bias: Tensor | None = None
) -> Tensor:
    """Return `(a / a_scale) @ (b / b_scale).t() + bias`, summed in float32.

    `a` and `b` are matrices of 8-bit floats, the scales have one element.
    """
    a_inverse, b_inverse = a_scale.reciprocal(), b_scale.reciprocal()
    result = (
        _by_kernel(a, b, a_inverse, b_inverse, dtype if bias is None else torch.float32)
        if has_kernel(a, b)
        else F.linear(a.float(), b.float()) * a_inverse * b_inverse
    )
    return (result if bias is None else result + bias).to(dtype)


def has_kernel(a: Tensor, b: Tensor) -> bool:
    """Whether the device multiplies these numbers as they are. Two of E5M2 no GPU does."""
    return (
        a.is_cuda
        and torch.version.hip is None
        and torch.cuda.get_device_capability(a.device) >= (8, 9)
        and torch.float8_e4m3fn in (a.dtype, b.dtype)
        and a.numel() > 0
        and b.numel() > 0
    )


def _by_kernel(a: Tensor, b: Tensor, a_inverse: Tensor, b_inverse: Tensor, dtype: torch.dtype) -> Tensor:
    columns = b.shape[0]
    a, b = _padded(a, 0, -a.shape[1] % _MULTIPLE), _padded(b, -columns % _MULTIPLE, -b.shape[1] % _MULTIPLE)
    kernel_dtype = dtype if dtype in _KERNEL_DTYPES else torch.float32
    result = scaled_mm(a, b.t(), scale_a=a_inverse, scale_b=b_inverse, out_dtype=kernel_dtype)
    return result[:, :columns]


def _padded(matrix: Tensor, rows: int, columns: int) -> Tensor:
    if rows == 0 and columns == 0:
        return matrix.contiguous()
    larger = matrix.new_zeros(matrix.shape[0] + rows, matrix.shape[1] + columns)
    larger[: matrix.shape[0], : matrix.shape[1]] = matrix
    return larger
