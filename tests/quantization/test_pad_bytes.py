"""Padding that follows from the size of the image, before convolutions in int8."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import (
    HAS_INT8,
    assert_round_trip,
    assert_unchanged,
    contexts,
    converted,
    graph_ir,
    kinds,
    ports,
    same_padding,
)

OPS = torch.ops.ipex


class Same(nn.Module):
    """TensorFlow's padding, between two convolutions."""

    def __init__(self, conv: nn.Module, *, value: float = 0.0, is_shown: bool = False) -> None:
        super().__init__()
        self.first = type(conv)(conv.in_channels, conv.in_channels, 1)
        self.conv, self.value, self.is_shown = conv, value, is_shown

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = F.pad(x, same_padding(x, self.conv), value=self.value)
        y = F.relu(self.conv(x))
        return y + x.mean() if self.is_shown else y


@pytest.mark.parametrize(
    ("conv", "shapes"),
    [
        (nn.Conv2d(8, 8, 3, stride=2), [(2, 8, 9, 8), (1, 8, 16, 16), (2, 8, 5, 12)]),
        (nn.Conv2d(16, 16, 5, stride=2, groups=16), [(2, 16, 9, 8), (1, 16, 20, 23)]),
        (nn.Conv2d(8, 8, 1, stride=2), [(2, 8, 9, 8)]),
        (nn.Conv2d(16, 16, 3, stride=(1, 2), padding=1), [(2, 16, 9, 8)]),
        (nn.Conv1d(8, 8, 4, stride=3), [(2, 8, 9), (2, 8, 10), (1, 8, 11)]),
    ],
)
def test_convolutions_pad(tmp_path, conv, shapes):
    torch.manual_seed(1)
    model, (first, *others) = Same(conv).eval(), [torch.randn(shape) for shape in shapes]
    module = converted(model, first, *others)
    found = kinds(module)
    assert ports(module)["quantized_convolution_run widths"] == 1
    # The image alone is rounded by an op of its own: the first gives numbers, though somebody asks for its sizes.
    assert found["ipex::quantize"] == 1
    assert not [kind for kind in found if kind in ("aten::pad", "aten::constant_pad_nd")]
    assert sum("result=uint8" in context.describe() for context in contexts(module)) == 1
    for x in (first, *others):
        with torch.no_grad():
            expected = model(x)
            assert (module(x) - expected).norm() / expected.norm() < 0.05
            assert module(x).stride() == expected.stride()
    assert_round_trip(module, tmp_path, first)


@pytest.mark.parametrize(
    ("options", "reason"), [({"value": 1.0}, "does not pad with zeros"), ({"is_shown": True}, "another reader")]
)
def test_declines(options, reason):
    model, x = Same(nn.Conv2d(8, 8, 3, stride=2), **options).eval(), torch.randn(2, 8, 9, 8)
    module = converted(model, x)
    assert ports(module)["quantized_convolution_run widths"] == 0
    assert [d for d in ipex.explain(module) if d.pass_name == "pad_bytes" and reason in d.reason]
    with torch.no_grad():
        expected = model(x)
        assert (module(x) - expected).norm() / expected.norm() < 0.05


def test_padding_of_floats_is_none_of_its_business():
    lines = ("%w : int[] = prim::Constant[value=[0, 1]]()", "%none : NoneType = prim::Constant()")
    pad = "%p : Tensor = aten::constant_pad_nd(%x, %w, %zero)"
    zero = "%zero : int = prim::Constant[value=0]()"
    assert_unchanged(
        "pad_bytes", graph_ir("%x : Tensor", *lines, zero, pad, "%y : Tensor = aten::relu(%p)", returns="%y"), None
    )


@pytest.mark.parametrize("zero_point", [0, 121])
@pytest.mark.parametrize("result", [[], [0.25, 17.0]])
def test_numbers_are_those_of_a_padded_image(zero_point, result):
    """Also of widths that no convolution has, which are put around the image first."""
    weight = torch.randint(-127, 128, (8, 4, 3, 3), dtype=torch.int8)
    scales = 2.0 ** -torch.randint(4, 9, (8,)).float()
    context = OPS.quantized_convolution_prepack(
        weight, scales, torch.randn(8), [2, 1], [0, 1, 1, 0], [1, 1], 1, ["relu"], [0.5, float(zero_point)], result, []
    )
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randint(0, 256, (2, 4, 9, 7), dtype=torch.uint8).contiguous(memory_format=layout)
        for widths in ([0, 0, 0, 0], [1, 2, 0, 3], [0, 1], [-1, 2, 1, 1], [1, 0, 0, 2, 0, 0, 1, 1], [4, 4, 4, 4]):
            padded = F.pad(x, widths, value=zero_point)
            for eager_layout in (True, False):
                y = OPS.quantized_convolution_run(x, context, [], eager_layout, widths)
                expected = OPS.quantized_convolution_run(padded, context, [], eager_layout)
                # In floats, where there are no instructions for bytes, sums round as the border is cut.
                tolerance = 0 if result or HAS_INT8 else 1e-5 * expected.abs().max().item()
                torch.testing.assert_close(y, expected, rtol=0, atol=tolerance)
                assert not eager_layout or y.stride() == expected.stride()
    with pytest.raises(RuntimeError):
        OPS.quantized_convolution_run(x, context, [], True, [1])
