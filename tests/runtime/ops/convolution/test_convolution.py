import copy

import pytest
import torch
from torch import nn

import ipex
from support import assert_round_trip, assert_same, check_against_eager, fallback_reasons, kinds

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
    "same": nn.Conv2d(8, 16, 3, padding="same"),
    "same, even kernel": nn.Conv2d(8, 16, (4, 2), padding="same", dilation=(1, 3)),
    "valid": nn.Conv2d(8, 16, 3, padding="valid"),
    "reflected": nn.Conv2d(8, 16, 3, padding=1, padding_mode="reflect"),
    "circular": nn.Conv2d(8, 16, 3, padding=(1, 2), padding_mode="circular"),
    "transposed": nn.ConvTranspose2d(8, 16, 3),
    "transposed, kernel is stride": nn.ConvTranspose2d(8, 16, 2, stride=2, bias=False),
    "transposed, strided": nn.ConvTranspose2d(8, 12, 4, stride=2, padding=1),
    "transposed, output padding": nn.ConvTranspose2d(8, 12, 3, stride=(2, 3), padding=1, output_padding=(1, 2)),
    "transposed, dilated": nn.ConvTranspose2d(8, 12, 3, dilation=2),
    "transposed, grouped": nn.ConvTranspose2d(8, 12, 3, stride=2, groups=4),
    "transposed, depthwise": nn.ConvTranspose2d(8, 8, 3, stride=2, groups=8),
}
# What oneDNN has no kernel for on some CPUs, and aten computes.
MAY_BE_LEFT_TO_ATEN = {"transposed, grouped", "transposed, depthwise"}
KNOWN_REASONS = ("oneDNN has no implementation", "in this corner oneDNN's kernels")


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_matches_eager(tmp_path, name):
    x = torch.randn(2, 8, 17, 15)
    also = (x[:1], x[0], x.to(memory_format=torch.channels_last), x[:, :, 1:, ::1], torch.randn(3, 8, 11, 31))
    optimized = check_against_eager(CONVOLUTIONS[name], x, also=also)
    assert kinds(optimized)["ipex::convolution_run"] == 1
    reasons = fallback_reasons(optimized)
    assert all(reason.startswith(KNOWN_REASONS) for reason in reasons)
    assert not reasons or name in MAY_BE_LEFT_TO_ATEN
    assert_round_trip(optimized, tmp_path, x)


OTHER_RANKS = {
    "1-d": (nn.Conv1d(6, 20, 3, padding=1), (2, 6, 19)),
    "1-d, same": (nn.Conv1d(6, 20, 4, padding="same"), (2, 6, 19)),
    "1-d, pointwise": (nn.Conv1d(6, 20, 1), (2, 6, 19)),
    "1-d, depthwise": (nn.Conv1d(6, 6, 5, padding=2, groups=6), (2, 6, 19)),
    "1-d, transposed": (nn.ConvTranspose1d(6, 20, 4, stride=2, padding=1), (2, 6, 19)),
    "3-d": (nn.Conv3d(4, 12, 3, padding=1), (2, 4, 5, 7, 6)),
    "3-d, strided": (nn.Conv3d(4, 12, (1, 3, 2), stride=(1, 2, 2)), (2, 4, 5, 7, 6)),
    "3-d, transposed": (nn.ConvTranspose3d(4, 12, 2, stride=2), (2, 4, 5, 7, 6)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("name", OTHER_RANKS)
def test_other_ranks_match_eager(tmp_path, name):
    conv, shape = OTHER_RANKS[name]
    x = torch.randn(shape)
    also = (x[:1], x[0], x.transpose(0, 1).contiguous().transpose(0, 1), x[..., 1:])
    optimized = check_against_eager(nn.Sequential(conv, nn.ReLU()), x, also=also)
    assert kinds(optimized)["ipex::convolution_run"] == 1
    assert fallback_reasons(optimized) == []
    assert_round_trip(optimized, tmp_path, x)


def test_channels_last_3d_stays_channels_last():
    x = torch.randn(2, 4, 5, 6, 7).to(memory_format=torch.channels_last_3d)
    check_against_eager(nn.Sequential(nn.Conv3d(4, 8, 3), nn.SiLU(), nn.ConvTranspose3d(8, 4, 3)), x)


@pytest.mark.parametrize("activation", [nn.Identity(), nn.Sigmoid()])
def test_windows_that_lie_wholly_in_the_padding(activation):
    for conv in (nn.Conv2d(4, 3, 1, 3, (0, 2), 2), nn.Conv2d(4, 3, 2, padding=2), nn.Conv1d(4, 3, 2, padding=3)):
        shape = (1, 4, 1, 1) if isinstance(conv, nn.Conv2d) else (1, 4, 5)
        optimized = check_against_eager(nn.Sequential(conv, activation), torch.randn(shape))
        assert fallback_reasons(optimized) == ["in this corner oneDNN's kernels read what they should not"]


WIDER_THAN_THE_IMAGE = {
    "one tap is left": (nn.Conv2d(6, 10, 3, padding=9, dilation=9), (2, 6, 7, 8)),
    "of one dimension": (nn.Conv2d(6, 10, 3, padding=(9, 1), dilation=(9, 1)), (2, 6, 7, 8)),
    "three taps are left": (nn.Conv2d(6, 10, 5, padding=(14, 12), dilation=(7, 6)), (2, 6, 6, 5)),
    "strided": (nn.Conv2d(6, 10, 3, 2, padding=9, dilation=9), (2, 6, 7, 7)),
    "grouped": (nn.Conv2d(6, 12, 3, padding=9, dilation=9, groups=2), (2, 6, 7, 8)),
    "depthwise": (nn.Conv2d(6, 6, 3, padding=9, dilation=9, groups=6), (2, 6, 7, 8)),
    "1-d": (nn.Conv1d(6, 10, 3, padding=32, dilation=32), (2, 6, 19)),
    "same": (nn.Conv2d(6, 10, 3, padding="same", dilation=11), (1, 6, 7, 8)),
    "channels-last": (nn.Conv2d(6, 10, 3, 1, 9, 9).to(memory_format=torch.channels_last), (2, 6, 7, 8)),
}


@pytest.mark.parametrize("name", WIDER_THAN_THE_IMAGE)
def test_windows_wider_than_the_image(tmp_path, name):
    """Taps that meet padding alone are left out, and brgemm is right about those that stay."""
    conv, shape = WIDER_THAN_THE_IMAGE[name]
    x, other = torch.randn(shape), torch.randn(*shape[:-1], shape[-1] - 2)
    also = [x[:1], other, x.transpose(-1, -2).contiguous().transpose(-1, -2)]
    also += [x.to(memory_format=torch.channels_last)] if x.dim() == 4 else []
    optimized = check_against_eager(nn.Sequential(conv, nn.GELU()), x, also=tuple(also))
    assert fallback_reasons(optimized) == []
    assert_round_trip(optimized, tmp_path, x)


def test_windows_wider_than_the_image_beside_other_ops():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(6, 10, 3, padding=9, dilation=9, bias=False), nn.BatchNorm2d(10)
            self.norm.running_mean.normal_()
            self.norm.weight.data.normal_()[3] = 0

        def forward(self, x, residual):
            return torch.relu(self.norm(self.conv(x)) + residual)

    x, residual = torch.randn(2, 6, 7, 8), torch.randn(2, 10, 7, 8)
    x[0, 2, 3, 4] = torch.nan  # dead taps never meet it
    also = [(torch.randn(1, 6, side, side), torch.randn(1, 10, side, side)) for side in (1, 20)]
    optimized = check_against_eager(Model(), x, residual, also=tuple(also))
    assert fallback_reasons(optimized) == []


def test_windows_wider_than_the_image_that_stay_in_aten():
    reason = "in this corner oneDNN's kernels read what they should not"
    depthwise = nn.Conv2d(6, 6, 3, padding=9, dilation=9, groups=6).to(memory_format=torch.channels_last)
    for conv in (depthwise, nn.Conv2d(6, 10, 2, padding=9, dilation=12), nn.Conv3d(6, 4, 3, padding=9, dilation=9)):
        x = torch.randn(2, 6, 8, 8, 8) if isinstance(conv, nn.Conv3d) else torch.randn(2, 6, 8, 8)
        assert fallback_reasons(check_against_eager(conv, x)) == [reason]


@pytest.mark.parametrize("name", ["1-d", "2-d", "3-d", "groups"])
def test_transposed_windows_that_lie_far_apart(name):
    """From some 4,096 on oneDNN, and so aten's ordinary way, writes to null."""
    conv, shape = {
        "1-d": (nn.ConvTranspose1d(4, 8, 4, stride=1100, padding=1), (2, 4, 3)),
        "2-d": (nn.ConvTranspose2d(4, 8, 4, stride=(1, 1100), output_padding=(0, 7)), (2, 4, 3, 3)),
        "3-d": (nn.ConvTranspose3d(4, 8, 2, stride=(1, 1, 1100), bias=False), (2, 4, 2, 2, 2)),
        "groups": (nn.ConvTranspose1d(4, 8, 4, stride=1100, groups=2), (2, 4, 3)),
    }[name]
    optimized = check_against_eager(nn.Sequential(conv, nn.ReLU()), torch.randn(shape))
    assert fallback_reasons(optimized) == ["in this corner oneDNN's kernels read what they should not"]


def test_what_ends_the_process_in_eager():
    """So it can't be traced."""
    weight, x = torch.randn(16, 8, 4, 4), torch.randn(1, 16, 3, 3)
    numbers = [2, 32768], [0, 0], [1, 1], 1, True, [0, 0]
    packed = torch.ops.ipex.convolution_prepack(weight, None, *numbers, [], None, None, None)
    y = torch.ops.ipex.convolution_run(x, packed, [], True)
    near = torch.nn.functional.conv_transpose2d(x, weight, stride=(2, 4))
    assert y.shape == (1, 8, 8, 65540)
    for i in range(3):
        assert_same(y[..., i * 32768 :][..., :4].clone(), near[..., i * 4 :][..., :4].clone())


def test_a_transposed_convolution_may_leave_nothing():
    check_against_eager(nn.ConvTranspose2d(8, 4, 2, padding=(0, 1)), torch.randn(2, 8, 3, 1))


@pytest.mark.parametrize(
    ("conv", "shape"),
    [
        (nn.ConvTranspose2d(17, 4, 1, padding=1), (2, 17, 2, 2)),
        (nn.ConvTranspose2d(1, 1, (4, 1), padding=(1, 2)), (1, 1, 6, 4)),
        (nn.ConvTranspose3d(2, 4, 1, padding=1), (2, 2, 2, 3, 4)),
        (nn.Conv1d(8, 4, 2, stride=2, padding=1), (1, 8, 0)),
    ],
)
def test_nothing_to_compute(conv, shape):
    larger = torch.randn(*shape[:2], *(size + 5 for size in shape[2:]))
    optimized = check_against_eager(conv, larger)
    with torch.no_grad():
        try:
            expected = conv(torch.randn(shape))
        except RuntimeError:  # so aten does on some CPUs
            with pytest.raises(RuntimeError, match="too small|Only zero batch"):
                optimized(torch.randn(shape))
        else:
            assert optimized(torch.randn(shape)).shape == expected.shape


def optimized_conv() -> torch.jit.ScriptModule:
    return ipex.jit_optimize(torch.jit.trace(nn.Conv2d(8, 4, 3).eval(), torch.randn(1, 8, 9, 9)))


@pytest.mark.parametrize("shape", [(2, 7, 9, 9), (9, 9), (1, 2, 8, 9, 9), (7, 9, 9)])
def test_wrong_rank_or_channels(shape):
    with pytest.raises(
        RuntimeError,
        match=r"ipex::convolution_run: expected input of 4 dimensions, or 3 without a batch, with 8 channels",
    ):
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


# Where oneDNN's kernels read what is no part of the image, ours and those of aten: what they find there is chance.
CORNERS = {
    "a kernel without room to move": (nn.Conv2d(1, 4, 3, (1, 2), 1), (2, 1, 4, 1)),
    "windows in the padding": (nn.Conv2d(1, 16, 1, 3, 2, 2), (2, 1, 4, 1)),
    "one row": (nn.Conv2d(4, 8, 5, 3, (1, 0)), (2, 4, 4, 9)),
    "no batch": (nn.Conv2d(4, 8, 5, 3, (1, 0)), (4, 4, 9)),
    "1-d": (nn.Conv1d(4, 8, 5, 3, 1), (2, 4, 4)),
    "3-d": (nn.Conv3d(1, 17, (1, 1, 5), (1, 1, 2)), (2, 1, 3, 4, 5)),
    "same": (nn.Conv2d(3, 4, 1, padding=2), (2, 3, 1, 1)),
    "transposed": (nn.ConvTranspose2d(3, 4, 2, 3, 2, 1), (2, 3, 4, 5)),
    "transposed, no batch": (nn.ConvTranspose2d(3, 4, 2, 3, 2, 1), (3, 4, 5)),
    "transposed, 1-d": (nn.ConvTranspose1d(3, 4, 1, 2, 1, 1), (2, 3, 6)),
    "the image in a hole of the window": (nn.Conv2d(1, 4, 2, 3, (0, 1), 2), (2, 1, 4, 1)),
    "taps that meet padding alone": (nn.Conv2d(4, 8, 3, padding=9, dilation=9), (2, 4, 5, 6)),
    "such taps at one end": (nn.Conv2d(4, 8, (2, 5), 2, (3, 12), 6), (2, 4, 5, 7)),
    "such taps alone": (nn.Conv1d(4, 8, 2, 12, 4, 8), (2, 4, 3)),
    "such taps, 3-d": (nn.Conv3d(2, 4, (1, 3, 5), 1, (0, 7, 8), (1, 7, 4)), (2, 2, 3, 6, 5)),
}
# Without the taps that meet padding alone.
OUT_OF_THE_CORNER = {"a kernel without room to move", "taps that meet padding alone"}


@pytest.mark.parametrize("layout", ["contiguous", "part of a larger one"])
@pytest.mark.parametrize("name", CORNERS)
def test_corners(name, layout):
    convolution, shape = CORNERS[name]
    model = nn.Sequential(convolution, nn.ReLU()).eval()
    x = torch.randn(shape) if layout == "contiguous" else torch.full([n + 2 for n in shape], torch.nan)
    if layout != "contiguous":
        x = x[tuple(slice(1, n + 1) for n in shape)].normal_()
    optimized = ipex.jit_optimize(torch.jit.script(model))
    exact = copy.deepcopy(model).double()(x.double())
    for _ in range(3):
        torch.testing.assert_close(optimized(x).double(), exact, rtol=1e-5, atol=1e-5)
    assert any("corner" in reason for reason in fallback_reasons(optimized)) == (name not in OUT_OF_THE_CORNER)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CORNERS)
def test_corners_beside_infinity(name, dtype):
    convolution, shape = CORNERS[name]
    model = copy.deepcopy(convolution).to(dtype).eval()
    x = torch.randn(shape, dtype=dtype)
    x[1:] = torch.inf
    with torch.no_grad():
        # Tracing runs eager's own kernels, which read what they should not. Scripted, a transposed one is not packed.
        script = torch.jit.trace(model, x, check_trace=False) if convolution.transposed else torch.jit.script(model)
        optimized = ipex.jit_optimize(script)
        exact = copy.deepcopy(model).double()(x.double())
        torch.testing.assert_close(optimized(x), exact.to(dtype), equal_nan=True, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_padding_by_name_under_autocast(padding, dtype):
    # Traced to aten::_convolution_mode, which autocast does not know: frozen TorchScript gives float32.
    conv, x = nn.Conv2d(3, 4, 3, padding=padding).eval(), torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(conv, x))
        with torch.autocast("cpu", dtype):
            expected = conv(x)
            assert expected.dtype == dtype
            assert_same(optimized(x), expected, 0.02)


def test_what_was_left_to_aten_has_a_reason():
    optimized = optimized_conv()
    optimized(torch.randn(0, 8, 9, 9))
    assert fallback_reasons(optimized) == ["there is nothing to compute"]


@pytest.mark.parametrize("layer", [nn.Conv1d(4, 6, 2, padding=2), nn.Conv1d(4, 6, 1), nn.ConvTranspose1d(4, 6, 3)])
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("is_relu", [False, True])
def test_a_sequence_with_its_channels_last(layer, length, is_relu):
    model = nn.Sequential(layer, *([nn.ReLU()] if is_relu else []))
    x = torch.randn(1, length, 4).transpose(1, 2)
    check_against_eager(model, x, also=(torch.randn(3, length, 4).transpose(1, 2), x[0], x.contiguous()))
