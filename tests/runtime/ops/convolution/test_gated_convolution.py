"""A gated convolution gives that of the product, however the gate and the image lie."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from support import assert_same


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


class Gated:
    """With relu and, if it `adds`, a residual."""

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1, adds: bool = False, mode: int | None = None):
        self.weight, self.bias = torch.randn(outputs, inputs, 1, 1) / inputs**0.5, torch.randn(outputs)
        self.stride, self.adds = stride, adds
        post_ops = ["add", "relu"] if adds else ["relu"]
        arguments = [stride, stride], [0, 0], [1, 1], 1, False, [0, 0], post_ops, None, None, mode
        self.context = torch.ops.ipex.convolution_prepack(self.weight, self.bias, *arguments)

    def eager(self, x: Tensor, gate: Tensor, residual: Tensor | None = None) -> Tensor:
        y = torch.conv2d(x * gate, self.weight, self.bias, self.stride)
        return (y + residual if residual is not None else y).relu()

    def check(self, x: Tensor, gate: Tensor, **options: float) -> None:
        before = x.clone(), gate.clone()
        expected = torch.conv2d(x * gate, self.weight, self.bias, self.stride)
        residual = torch.randn_like(expected).to(memory_format=torch.channels_last) if self.adds else None
        operands = [] if residual is None else [residual]
        actual = torch.ops.ipex.convolution_run(x, self.context, operands, False, gate=gate)
        wanted = self.eager(x, gate, residual)
        assert actual.shape == wanted.shape
        assert_same(actual.flatten(), wanted.flatten(), **options)
        for tensor, old in zip((x, gate), before):
            assert torch.equal(tensor.nan_to_num(), old.nan_to_num())


def image(images: int, channels: int, height: int, width: int) -> Tensor:
    return torch.randn(images, channels, height, width).to(memory_format=torch.channels_last)


def gate_of(x: Tensor) -> Tensor:
    return torch.rand(x.shape[0], x.shape[1], 1, 1)


@pytest.mark.parametrize("size", [(1, 7, 7), (3, 7, 7), (1, 28, 28), (2, 14, 15), (1, 56, 56), (4, 1, 1), (5, 2, 3)])
@pytest.mark.parametrize(("inputs", "outputs"), [(32, 16), (37, 41), (144, 24), (160, 192), (672, 112)])
@pytest.mark.parametrize("adds", [False, True])
def test_sizes(size, inputs, outputs, adds):
    x = image(size[0], inputs, *size[1:])
    Gated(inputs, outputs, adds=adds).check(x, gate_of(x))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("outputs", [48, 320])
def test_threads(threads, outputs):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = image(3, 192, 13, 17)
        Gated(192, outputs).check(x, gate_of(x))
    finally:
        torch.set_num_threads(before)


def test_strides():
    x = image(2, 160, 15, 14)
    Gated(160, 192, stride=2).check(x, gate_of(x))


@pytest.mark.parametrize("where", ["image", "gate"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf, 1e30, 1e-40])
def test_numbers_at_the_edges(where, number):
    x = image(2, 160, 14, 14)
    gate = gate_of(x)
    (x if where == "image" else gate)[1, 3] = number
    Gated(160, 192).check(x, gate)


@pytest.mark.parametrize("images", [1, 2])
def test_one_gate_for_all_images(images):
    x = image(images, 64, 14, 14)
    Gated(64, 48).check(x, torch.rand(1, 64, 1, 1))


def test_gates_that_lie_in_another_way():
    x = image(2, 64, 14, 14)
    Gated(64, 48).check(x, torch.rand(64, 2, 1, 1).transpose(0, 1))
    Gated(64, 48).check(x, gate_of(x).to(memory_format=torch.channels_last))
    Gated(64, 48).check(x, torch.rand(2, 64, 14, 14))
    Gated(64, 48).check(x, torch.rand(64, 1, 1))


def test_contiguous_images():
    x = image(2, 64, 14, 14).contiguous()
    Gated(64, 48).check(x, gate_of(x))


def test_bf32():
    mode = 2  # BF32
    x = image(1, 160, 28, 28)
    Gated(160, 192, mode=mode).check(x, gate_of(x), tolerance=2e-2)


def test_layout_of_the_result():
    x = image(2, 64, 14, 14)
    gated = Gated(64, 48)
    actual = torch.ops.ipex.convolution_run(x, gated.context, [], True, gate=gate_of(x))
    assert actual.is_contiguous(memory_format=torch.channels_last)


def test_gradients():
    x, gated = image(2, 64, 14, 14).requires_grad_(), Gated(64, 48)
    gate = gate_of(x).requires_grad_()
    with torch.enable_grad():
        actual = torch.ops.ipex.convolution_run(x, gated.context, [], False, gate=gate)
        found = torch.autograd.grad(actual.sum(), (x, gate))
        expected = torch.autograd.grad(gated.eager(x, gate).sum(), (x, gate))
    for one, other in zip(found, expected):
        assert_same(one, other)


def test_autocast():
    x, gated = image(2, 64, 14, 14), Gated(64, 48)
    gate = gate_of(x)
    with torch.autocast("cpu", torch.bfloat16):
        actual = torch.ops.ipex.convolution_run(x, gated.context, [], False, gate=gate)
        expected = gated.eager(x, gate)
    assert actual.dtype == expected.dtype
    assert_same(actual.float().contiguous(), expected.float().contiguous(), tolerance=2e-2)


def test_refuses_other_channels():
    x = image(2, 63, 14, 14)
    with pytest.raises(RuntimeError, match="with 64 channels"):
        torch.ops.ipex.convolution_run(x, Gated(64, 48).context, [], False, gate=gate_of(x))
