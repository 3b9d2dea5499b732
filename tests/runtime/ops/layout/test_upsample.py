"""Images made larger or smaller: aten's values, strides, refusals and errors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from support import assert_same, assert_same_error, own_thread_count, why_aten

METHODS = ["nearest", "bilinear", "bilinear, corners", "bicubic", "bicubic, corners"]
FORMATS = [torch.contiguous_format, torch.channels_last]
SHAPES = [(1, 3, 7, 9), (2, 20, 13, 11), (1, 4, 1, 1), (1, 1, 5, 6), (2, 67, 12, 10), (1, 2, 40, 300), (1, 2, 3, 1)]
# Sizes, and factors.
TARGETS = [(20, 33), (1, 1), (5, 4), (64, 20), (2.0, 2.0), (1.7, 2.3), (0.6, 0.7), (3.0, 1.0)]


def call(library: str, method: str, x: Tensor, target: tuple[float, ...], *more: bool) -> Tensor:
    name, _, corners = method.partition(", ")
    op = getattr(getattr(torch.ops, library), f"upsample_{name}2d")
    size, factors = (None, target) if isinstance(target[0], float) else (target, None)
    align = () if name == "nearest" else (bool(corners),)
    return (op.vec if library == "aten" else op)(x, size, *align, factors, *more)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_matches_aten(method, memory_format, shape):
    x = torch.randn(shape).contiguous(memory_format=memory_format)
    tolerance = 0 if method == "nearest" else 1e-5
    for target in [*TARGETS, shape[2:], (2 * shape[2], 2 * shape[3])]:
        if isinstance(target[0], float) and min(shape[2] * target[0], shape[3] * target[1]) < 1:
            continue
        expected = call("aten", method, x, target)
        if method != "nearest" or isinstance(target[0], int):
            assert why_aten(lambda: call("ipex", method, x, target)) is None  # noqa: B023
        assert_same(call("ipex", method, x, target), expected, tolerance)
        restored = torch.ops.ipex.restore_layout(expected, False)
        assert_same(call("ipex", method, x, target, False), restored, tolerance)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("memory_format", FORMATS)
def test_nan_and_infinity_reach_the_same_pixels(method, memory_format):
    x = torch.randn(1, 5, 9, 8).contiguous(memory_format=memory_format)
    x[0, 0, 3, 4], x[0, 1, 0, 0], x[0, 2, 8, 7], x[0, 3, 5, 7] = torch.nan, torch.inf, -torch.inf, torch.inf
    for target in [(9, 8), (18, 16), (30, 20), (4, 5)]:
        assert_same(call("ipex", method, x, target), call("aten", method, x, target))


@pytest.mark.parametrize("method", METHODS)
def test_views(method):
    x = torch.randn(2, 12, 9, 8)
    for part in (x[:, 2:7], x[:, :, 1:5, ::2], x.transpose(2, 3), x[:, :1].expand(2, 6, 9, 8)):
        assert_same(call("ipex", method, part, (14, 17)), call("aten", method, part, (14, 17)))


def test_what_is_left_to_aten():
    x = torch.randn(1, 3, 4, 5)

    def why(x: Tensor, target: tuple[float, ...] = (8, 10), method: str = "bilinear") -> str | None:
        return why_aten(lambda: call("ipex", method, x, target))

    assert why(x) is None
    assert why(x.double()) == "its input is not a float32 CPU tensor"
    assert why(x.bfloat16()) == "its input is not a float32 CPU tensor"
    assert why(x.clone().requires_grad_()) == "its input requires a gradient"
    assert why(x[:0]) == "its input is no batch of images"
    # aten counts 1.1 * 10 pixels as 11 and 2.1 * 4 as twice 4, and picks pixels in one way or another by the layout.
    for factors in ((2.1, 2.1), (2.1, 2.0), (2.0, 2.1)):
        square = x[..., :4]
        assert why(square, factors, "nearest") == "its factors are not those of its sizes"
    assert why(x, (2.1, 2.1), "bilinear") is None
    with torch.autocast("cpu"):
        assert why(x) == "autocast is on"
    for y in (x.double(), x.bfloat16()):
        assert_same(call("ipex", "bilinear", y, (8, 10), False), call("aten", "bilinear", y, (8, 10)), 0)


def test_errors_are_atens():
    x = torch.randn(1, 3, 4, 5)
    for image, target in [(x[0], (8, 10)), (x, (0, 3)), (x, (8,)), (x, (0.1, 0.1))]:
        with pytest.raises(RuntimeError) as expected:
            call("aten", "bilinear", image, target)
        with pytest.raises(RuntimeError) as actual:
            call("ipex", "bilinear", image, target)
        assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]
    for given in (([8, 10], [2.0, 2.0]), (None, None)):
        assert_same_error(
            lambda: torch.ops.ipex.upsample_nearest2d(x, *given),  # noqa: B023
            lambda: torch.ops.aten.upsample_nearest2d(x, *given),  # noqa: B023
        )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("memory_format", FORMATS)
def test_threads_give_the_same(method, memory_format):
    x = torch.randn(3, 5, 40, 50).contiguous(memory_format=memory_format)
    with own_thread_count():
        torch.set_num_threads(1)
        alone = call("ipex", method, x, (90, 70))
        torch.set_num_threads(5)
        assert torch.equal(call("ipex", method, x, (90, 70)), alone)


def test_gradients():
    x = torch.randn(1, 3, 4, 5, requires_grad=True)
    call("ipex", "bilinear", x, (8, 10)).sum().backward()
    ours, x.grad = x.grad, None
    call("aten", "bilinear", x, (8, 10)).sum().backward()
    assert_same(ours, x.grad)
