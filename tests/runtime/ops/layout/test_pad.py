"""ipex::pad is aten::pad, but may be its input where nothing is padded, and fills the border alone."""

from __future__ import annotations

import pytest
import torch

import ipex  # noqa: F401
from support import assert_same, why_aten

pad = torch.ops.ipex.pad


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("pads", [[1, 2], [0, 0, 3, 0], [0, 0, 0, 2, 0, 3], [1, 0, 0, 4, 2, 1, 0, 1]])
@pytest.mark.parametrize("value", [None, 0.0, 2.0])
def test_matches_aten(pads, dtype, value):
    x = torch.randint(0, 2, (2, 3, 4, 5)).to(dtype)
    for image in (x, x.contiguous(memory_format=torch.channels_last), x.transpose(1, 3), x[:, ::2]):
        before = image.clone()
        expected = torch.nn.functional.pad(image, pads, "constant", value)
        y = pad(image, pads, "constant", value, True)
        assert torch.equal(y, expected)
        assert (y.dtype, y.stride()) == (expected.dtype, expected.stride())
        assert torch.equal(image, before)
        assert why_aten(lambda image=image: pad(image, pads, "constant", value, True)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex128])
@pytest.mark.parametrize("pads", [[0, 3], [2, 1, 0, 0], [0, 0, 0, 1], [1, 2, 3, 0, 0, 1], [0, 0, 2, 2, 1, 0, 1, 1]])
@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -torch.inf])
def test_rows_of_every_layout(pads, value, dtype):
    x = torch.randn(2, 40, 7, 70).to(dtype)
    layouts = {
        "contiguous": x,
        "channels-last": x.contiguous(memory_format=torch.channels_last),
        "heads": x.transpose(1, 2),
        "gaps": x[..., 3:],
        "every other": x[..., ::2],
        "spread": x[:, :1].expand(-1, 5, -1, -1),
        "volume": x.view(2, 4, 10, 7, 70).contiguous(memory_format=torch.channels_last_3d),
    }
    for name, image in layouts.items():
        expected = torch.nn.functional.pad(image, pads, "constant", value)
        y = pad(image, pads, "constant", value, True)
        assert torch.equal(y, expected), name
        if not y.is_complex():
            assert torch.equal(y.float().signbit(), expected.float().signbit()), name
        assert (y.dtype, y.stride()) == (expected.dtype, expected.stride()), name


def test_nothing_is_padded():
    x = torch.randn(2, 3, 4)
    assert pad(x, [0, 0, 0, 0], "constant", None, True) is x
    copy = pad(x, [0, 0], "constant", None, False)
    assert torch.equal(copy, x)
    assert copy.data_ptr() != x.data_ptr()
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert pad(image, [0, 0], "constant", None, True) is image
    turned = pad(x.transpose(0, 1), [0, 0], "constant", None, True)
    assert turned.stride() == torch.nn.functional.pad(x.transpose(0, 1), [0, 0]).stride()
    apart = pad(x[..., ::2], [0, 0], "constant", None, True)
    assert_same(apart, torch.nn.functional.pad(x[..., ::2], [0, 0]), tolerance=0)


LEFT_TO_ATEN = {
    "mode": (torch.randn(1, 3, 4), [1, 1], "reflect", "border is no number"),
    "cut": (torch.randn(3, 4), [-1, 1], "constant", "cut"),
    "empty": (torch.randn(0, 4), [1, 1], "constant", "empty"),
    "gradient": (torch.randn(3, 4, requires_grad=True), [1, 1], "constant", "gradient"),
}


@pytest.mark.parametrize("case", LEFT_TO_ATEN.values(), ids=LEFT_TO_ATEN.keys())
def test_the_rest_is_atens(case):
    x, pads, mode, reason = case
    assert reason in str(why_aten(lambda: pad(x, pads, mode, None, True)))
    y, expected = pad(x, pads, mode, None, True), torch.nn.functional.pad(x, pads, mode)
    assert torch.equal(y, expected)
    assert y.requires_grad == expected.requires_grad


@pytest.mark.parametrize(("pads", "mode"), [([1], "constant"), ([0], "constant"), ([0] * 6, "constant"), ([1, 1], "x")])
def test_what_aten_refuses(pads, mode):
    x = torch.randn(3, 4)
    with pytest.raises((RuntimeError, NotImplementedError)) as expected:
        torch.ops.aten.pad(x, pads, mode, None)
    with pytest.raises((RuntimeError, NotImplementedError)) as actual:
        pad(x, pads, mode, None, True)
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]
