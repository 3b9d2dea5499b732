"""The names that ops had, which files of earlier versions call: each is what the op of today gives."""

from __future__ import annotations

import io

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ipex
from support import assert_same

OPS = torch.ops.ipex
EPS, SCALE, ZERO = 1e-5, 0.05, 93
W, B = torch.randn(5), torch.randn(5)


def moves() -> tuple[object, list[int]]:
    """Windows of an image of 4 by 6."""
    return OPS.row_moves_prepack(["reshape", "permute"], [5, 5]), [2, 2, 2, 6, 5, 0, 2, 1, 3, 4]


def same(actual: Tensor, expected: Tensor) -> None:
    assert actual.dtype == expected.dtype
    assert_same(actual, expected, 0)


def test_elementwise():
    x, w = torch.randn(3, 4, 5).permute(1, 0, 2), torch.randn(3, 5)
    numbers, steps = torch.randint(0, 256, (4, 3, 5), dtype=torch.uint8), ["mul 0 1"]
    affines, result = [SCALE, float(ZERO), 0.0, 0.0], [0.1, 20.0]
    same(OPS.contiguous_elementwise([x, w], steps), OPS.elementwise([x, w], steps, in_one_piece=True))
    same(OPS.sliced_elementwise([x, w], steps, 1), OPS.elementwise([x, w], steps, outermost=1))
    same(OPS.elementwise.bytes([x, w], steps, 0.1, 20), OPS.elementwise([x, w], steps, rounded=result))
    expected = OPS.elementwise([numbers, w], steps, affines=affines, rounded=result)
    same(OPS.elementwise.of_bytes([numbers, w], steps, affines, result), expected)
    halves, cast = [x.half(), w], [True, False]
    expected = OPS.elementwise(halves, steps, cast, dtype=torch.float16)
    same(OPS.elementwise.cast(halves, steps, cast, torch.float16), expected)
    for op, is_mean in ((OPS.elementwise_sum, False), (OPS.elementwise_mean, True)):
        same(op([x, w], steps, [1], True), OPS.elementwise([x, w], steps, [1], True, is_mean))
        expected = OPS.elementwise(halves, steps, [1], True, is_mean, restored=cast)
        same(op.cast(halves, steps, [1], True, cast), expected)


def test_norms():
    x, b, r = torch.randn(2, 4, 6, 5), torch.randn(2, 4, 6, 5), torch.randn(2, 2, 2, 6, 5)
    given, (context, numbers) = ([5], W, B, EPS), moves()
    forms = {
        "default": ((), {}),
        "bytes": ((SCALE, ZERO), {"rounded": [SCALE, float(ZERO)]}),
        "lowered": ((torch.bfloat16,), {"dtype": torch.bfloat16}),
    }
    for form, (older, today) in forms.items():
        alone = getattr(OPS.layer_norm, form)
        assert torch.equal(alone(x, *given, *older), OPS.layer_norm(x, *given, **today))
        for name, moves_result in (("to_rows", True), ("of_rows", False)):
            moved = getattr(getattr(OPS, f"layer_norm_{name}"), form)
            expected = OPS.layer_norm(x, *given, context, numbers, moves_result, **today)
            assert torch.equal(moved(x, *given, context, numbers, *older), expected)
            moved = getattr(getattr(OPS, f"add_layer_norm_{name}"), form)
            a = x if moves_result else r
            found = moved(a, b, *given, True, False, context, numbers, *older)
            expected = OPS.layer_norm.of_sum(a, b, *given, True, False, context, numbers, moves_result, **today)
            assert all(map(torch.equal, found, expected))
        found = getattr(OPS.add_layer_norm, form)(x, b, *given, True, False, *older)
        assert all(map(torch.equal, found, OPS.layer_norm.of_sum(x, b, *given, True, False, **today)))
    assert torch.equal(OPS.add_layer_norm(x, b, *given, False)[0], OPS.layer_norm(x + b, *given))
    assert torch.equal(OPS.layer_norm_sum(b, x, *given), OPS.layer_norm(x, *given, residual=b))
    expected = OPS.layer_norm(x, *given, context, numbers, residual=r)
    assert torch.equal(OPS.layer_norm_of_rows_sum(r, x, *given, context, numbers), expected)
    expected = OPS.rms_norm(x, W, EPS, None, None, residual=b, like=b)
    assert torch.equal(OPS.rms_norm_sum(b, x, W, EPS, None, None, b), expected)


def test_convolutions():
    x, gate, weight = torch.randn(2, 4, 6, 5), torch.rand(2, 4, 1, 1), torch.randn(8, 4, 3, 3)
    geometry, widths = ([1, 1], [0, 0], [1, 1], 1), [1, 2, 0, 3]
    context = OPS.convolution_prepack(weight, None, *geometry, False, [0, 0], [], None, None, None)
    same(OPS.padded_convolution_run(x, context, [], True, widths), OPS.convolution_run(x, context, [], True, widths))
    expected = OPS.convolution_run(x, context, [], True, gate=gate)
    same(OPS.gated_convolution_run(x, gate, context, [], True), expected)
    both = OPS.convolution_run(x, context, [], True, widths, gate)
    assert_same(both, torch.conv2d(F.pad(x * gate, widths), weight))
    codes, scales = torch.randint(-9, 9, weight.shape, dtype=torch.int8), torch.ones(8)
    numbers, ends = torch.randint(0, 256, x.shape, dtype=torch.uint8), [0, 0, 0, 0]
    context = OPS.quantized_convolution_prepack(
        codes, scales, None, [1, 1], ends, [1, 1], 1, [], [SCALE, float(ZERO)], [], []
    )
    expected = OPS.quantized_convolution_run(numbers, context, [], True, widths)
    same(OPS.padded_quantized_convolution_run(numbers, context, [], True, widths), expected)


def test_others_that_read_or_give_8_bit_numbers():
    numbers, affine = torch.randint(0, 256, (2, 8, 5, 5), dtype=torch.uint8), [SCALE, float(ZERO)]
    same(OPS.mean.of_bytes(numbers, [2, 3], True, SCALE, ZERO), OPS.mean(numbers, [2, 3], True, affine))
    expected = OPS.adaptive_avg_pool2d(numbers, [1, 1], affine)
    same(OPS.adaptive_avg_pool2d.of_bytes(numbers, [1, 1], SCALE, ZERO), expected)
    images, statistics = [torch.randn(2, 4, 5, 5), torch.randn(2, 4, 5, 5)], [torch.rand(8) for _ in range(4)]
    expected = OPS.cat_batch_norm(images, *statistics, EPS, True, affine)
    same(OPS.cat_batch_norm.bytes(images, *statistics, EPS, True, SCALE, ZERO), expected)
    heads, scales = torch.randint(0, 256, (1, 2, 6, 8), dtype=torch.uint8), [0.02, 128.0] * 3
    op, given = OPS.scaled_dot_product_attention_of_bytes, (heads, heads, heads, None, 0.0, False, None, False, scales)
    same(op.bytes(*given, SCALE, ZERO), op(*given, affine))


class Saved(torch.nn.Module):
    """Calls as a file has them."""

    def forward(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        numbers = torch.ops.ipex.elementwise([x, w], ["mul 0 1"], 0.05, 93)
        cast = torch.ops.ipex.elementwise([x, w], ["mul 0 1"], [False, False], 15)
        y, total = torch.ops.ipex.add_layer_norm(x, w, [5], None, None, 1e-5, True, False)
        return numbers, cast, y + total


@pytest.mark.parametrize("again", [False, True])
def test_a_file(again):
    """Called, or optimised once more."""
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(Saved().eval()), buffer)
    buffer.seek(0)
    x, w = torch.randn(3, 5), torch.randn(3, 5)
    loaded = torch.jit.load(buffer)
    numbers, cast, y = (ipex.jit_optimize(loaded) if again else loaded)(x, w)
    same(numbers, OPS.quantize(x * w, SCALE, ZERO))
    same(cast, (x * w).bfloat16())
    assert_same(y, torch.nn.functional.layer_norm(x + w, [5]) + x + w)
