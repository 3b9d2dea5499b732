"""The border of a channels-last stretch: values, strides, and who may differentiate."""

from __future__ import annotations

import pytest
import torch

from support import assert_same

to_channels_last = torch.ops.ipex.to_channels_last
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 16])
def test_images_are_converted(rank, channels):
    for batch in (0, 1, 3):
        x = torch.randn(batch, channels, *(5, 7, 6)[:rank])
        assert_same(to_channels_last(x, rank), x.contiguous(memory_format=FORMATS[rank]), tolerance=0)
    alone = torch.randn(channels, *(5, 7, 6)[:rank])
    batched = alone.unsqueeze(0).contiguous(memory_format=FORMATS[rank])
    assert_same(to_channels_last(alone, rank), batched.squeeze(0), tolerance=0)


@pytest.mark.parametrize("dtype", [torch.double, torch.bfloat16, torch.int32])
def test_other_dtypes_are_converted(dtype):
    x = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).to(dtype)
    assert_same(to_channels_last(x, 2), x.contiguous(memory_format=torch.channels_last), tolerance=0)


def test_slices_are_converted():
    x = torch.randn(2, 6, 9, 8)
    for part in (x[:, 1:4], x[:, :3, ::2], x[:, :3].transpose(2, 3), x[:, :1].expand(2, 3, 9, 8)):
        assert_same(to_channels_last(part, 2), part.contiguous(memory_format=torch.channels_last), tolerance=0)


def test_what_is_channels_last_stays_itself():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert to_channels_last(x, 2).data_ptr() == x.data_ptr()
    column = torch.randn(2, 3, 1, 1)
    assert to_channels_last(column, 2).data_ptr() == column.data_ptr()


def test_gradients_reach_the_image():
    x = torch.randn(1, 3, 4, 5, requires_grad=True)
    weights = torch.randn(1, 3, 4, 5)
    (to_channels_last(x, 2) * weights).sum().backward()
    assert_same(x.grad, weights, tolerance=0)
    assert to_channels_last(x, 2).is_contiguous()  # what follows is aten's, and in the layout that eager has


def test_threads_give_the_same():
    x = torch.randn(5, 3, 100, 90)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert_same(to_channels_last(x, 2), x.contiguous(memory_format=torch.channels_last), tolerance=0)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float, torch.double, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("channels", [3, 4, 5, 8, 15, 16, 17, 40, 65])
@pytest.mark.parametrize("width", [1, 3, 4, 9, 16, 31, 70])
def test_copies_of_any_size_have_every_element(dtype, channels, width):
    x = torch.arange(2 * 3 * channels * width).reshape(2, channels, 3, width).to(dtype)
    for part in (x, x[:, 1:], x[:, :, 1:2], x[..., :-1], x.transpose(2, 3), x[:, :, :, ::2]):
        channels_last = part.contiguous(memory_format=torch.channels_last)
        assert torch.equal(to_channels_last(part, 2), channels_last)
        for image in (channels_last, channels_last[:, :-1], channels_last[:, :, 1:]):
            restored = torch.ops.ipex.restore_layout(image, False)
            assert torch.equal(restored, image)
            assert restored.is_contiguous()
