import pytest
import torch
from torch import nn

import ipex
from support import assert_round_trip, check_against_eager, fallback_reasons, kinds

CONVOLUTIONS = {
    "1x1": nn.Conv2d(8, 24, 1),
    "3x3": nn.Conv2d(8, 20, 3, padding=1),
    "no bias": nn.Conv2d(8, 16, 3, bias=False),
    "strided": nn.Conv2d(8, 16, 3, stride=2, padding=1),
    "dilated": nn.Conv2d(8, 16, 3, dilation=2),
    "asymmetric": nn.Conv2d(8, 16, (1, 5), stride=(2, 1), padding=(0, 2)),
    "grouped": nn.Conv2d(8, 16, 3, groups=4),
    "depthwise": nn.Conv2d(8, 8, 3, padding=1, groups=8),
    "depthwise, wider": nn.Conv2d(8, 16, 3, groups=8),
    "large kernel": nn.Conv2d(8, 4, 11, padding=5),
    "one channel out": nn.Conv2d(8, 1, 3),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_matches_eager(tmp_path, name):
    x = torch.randn(2, 8, 17, 15)
    also = (x[:1], x[0], x.to(memory_format=torch.channels_last), x[:, :, 1:, ::1], torch.randn(3, 8, 11, 31))
    optimized = check_against_eager(CONVOLUTIONS[name], x, also=also)
    assert kinds(optimized)["ipex::conv2d_run"] == 1
    assert fallback_reasons(optimized) == []
    assert_round_trip(optimized, tmp_path, x)


def optimized_conv() -> torch.jit.ScriptModule:
    return ipex.jit_optimize(torch.jit.trace(nn.Conv2d(8, 4, 3).eval(), torch.randn(1, 8, 9, 9)))


@pytest.mark.parametrize("shape", [(2, 7, 9, 9), (9, 9), (1, 2, 8, 9, 9), (7, 9, 9)])
def test_wrong_rank_or_channels(shape):
    with pytest.raises(RuntimeError, match=r"ipex::conv2d_run: expected input of \[batch, 8, height, width\]"):
        optimized_conv()(torch.randn(shape))


def test_input_smaller_than_the_kernel():
    with pytest.raises(RuntimeError, match="expected an input at least as large as the kernel"):
        optimized_conv()(torch.randn(1, 8, 2, 9))


def test_wrong_dtype_is_eagers_error():
    with pytest.raises(RuntimeError, match="same"):
        optimized_conv()(torch.randn(1, 8, 9, 9, dtype=torch.float64))


def test_empty_batch():
    check_against_eager(nn.Conv2d(8, 4, 3), torch.randn(2, 8, 9, 9), also=(torch.randn(0, 8, 9, 9),))


def test_gradients_reach_the_input():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    x = torch.randn(1, 3, 8, 8)
    optimized = ipex.jit_optimize(torch.jit.trace(model, x))
    ours, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
    for _ in range(3):
        optimized(ours).sum().backward()
        model(eager).sum().backward()
    torch.testing.assert_close(ours.grad, eager.grad)
    assert fallback_reasons(optimized) == ["the input requires a gradient"]


def test_what_was_left_to_aten_has_a_reason():
    optimized = optimized_conv()
    optimized(torch.randn(0, 8, 9, 9))
    assert fallback_reasons(optimized) == ["the input is empty"]
