"""Norms whose result is added to a residual, row by row: eager's values, dtypes and strides."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from support import assert_same, why_aten

OPS = torch.ops.ipex


def layer_norm(r: Tensor, x: Tensor, w: Tensor | None = None, b: Tensor | None = None) -> tuple[Tensor, Tensor]:
    shape = [x.size(-1)]
    return OPS.layer_norm(x, shape, w, b, 1e-5, residual=r), r + F.layer_norm(x, shape, w, b)


def rms_norm(r: Tensor, x: Tensor, w: Tensor | None = None, like: Tensor | None = None) -> tuple[Tensor, Tensor]:
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
    y = y if w is None else w * y
    return OPS.rms_norm(x, w, 1e-5, None, None, residual=r, like=like), r + (y if like is None else y.type_as(like))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [1, 7, 16, 96, 1030])
def test_matches_eager(width, threads):
    torch.set_num_threads(threads)
    w, b = torch.randn(width), torch.randn(width)
    for shape in ((3, width), (2, 40, width), (2, 3, 4, width)):
        r, x = torch.randn(shape), torch.randn(shape)
        for run in (
            lambda: layer_norm(r, x),  # noqa: B023
            lambda: layer_norm(r, x, w, b),  # noqa: B023
            lambda: rms_norm(r, x),  # noqa: B023
            lambda: rms_norm(r, x, w, like=r),  # noqa: B023
        ):
            before = r.clone()
            assert_same(*run(), 4e-6)
            assert torch.equal(r, before)
            assert why_aten(lambda: run()[0]) is None  # noqa: B023


def test_rows_that_lie_apart():
    r, x = torch.randn(2, 5, 16), torch.randn(2, 5, 40)[..., 3:19]
    assert_same(*layer_norm(r, x), 4e-6)
    assert_same(*rms_norm(r, x), 4e-6)


def test_what_is_left_to_aten():
    r, x, w = torch.randn(2, 5, 16), torch.randn(2, 5, 16), torch.randn(16)

    def why(r: Tensor = r, x: Tensor = x, run=layer_norm, **more: Tensor) -> str:
        actual, expected = run(r, x, **more)
        assert_same(actual.detach(), expected.detach(), 1e-2 if expected.dtype == torch.bfloat16 else 4e-6)
        return str(why_aten(lambda: run(r, x, **more)[0]))

    for run in (layer_norm, rms_norm):
        assert "its sum is broadcast" in why(r[:1], run=run)
        assert "its sum is not of float32" in why(r.bfloat16(), x.bfloat16(), run=run)
        assert "an operand requires a gradient" in why(r.clone().requires_grad_(), run=run)
        assert "an operand is not contiguous" in why(torch.randn(2, 16, 5).transpose(1, 2), run=run)
        assert "a row is not finite" in why(x=x * 1e30, run=run)
        with torch.autocast("cpu"):
            assert "autocast is on" in str(why_aten(lambda: run(r, x)[0]))  # noqa: B023
    assert "it is cast before it is added" in why(run=rms_norm, w=w, like=r.bfloat16())
