import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import ipex  # noqa: F401
from support import assert_same, fast

EPS = 1e-3
Parameters = tuple[Tensor, ...]


def parameters(channels: int) -> Parameters:
    """Weight, bias, mean and variance."""
    return torch.randn(channels), torch.randn(channels), torch.randn(channels), torch.rand(channels) + 0.1


def eager(x: Tensor, p: Parameters, *, relu: bool) -> Tensor:
    y = functional.batch_norm(x, p[2], p[3], p[0], p[1], eps=EPS)
    return torch.relu(y) if relu else y


def ours(x: Tensor, p: Parameters, *, relu: bool) -> Tensor:
    return torch.ops.ipex.batch_norm(x, *p, EPS, relu, [])


def check(x: Tensor, p: Parameters, *, by_kernel: bool = True) -> None:
    for relu in (False, True):
        assert_same(ours(x, p, relu=relu), eager(x, p, relu=relu), tolerance=1e-5 if by_kernel else 0)
    assert fast(lambda: ours(x, p, relu=True)) == by_kernel


@pytest.mark.parametrize(
    "shape", [(3, 7), (3, 7, 1), (1, 32, 9), (2, 33, 5, 4), (2, 5, 1, 1), (2, 16, 3, 4, 5), (2, 1, 6)]
)
def test_matches_eager(shape):
    check(torch.randn(shape), parameters(shape[1]))


@pytest.mark.parametrize("shape", [(2, 33, 5, 4), (1, 8, 5, 1), (2, 1, 3, 3), (2, 16, 3, 4, 5)])
def test_keeps_channels_last(shape):
    memory_format = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    check(torch.randn(shape).to(memory_format=memory_format), parameters(shape[1]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45, -0.0])
def test_special_values(value):
    x, p = torch.randn(2, 4, 3, 3), parameters(4)
    x[0, 1], x[1, 3, 0] = value, value
    check(x, p)
    check(x.to(memory_format=torch.channels_last), p)
    for i in range(3):
        special = tuple(t.clone() for t in p)
        special[i][2] = value
        check(torch.randn(2, 4, 3, 3), special, by_kernel=abs(value) < 1)


def test_parameters_that_are_absent():
    x, (weight, bias, mean, variance) = torch.randn(2, 4, 3, 3), parameters(4)
    check(x, (None, None, mean, variance))
    check(x, (weight, None, mean, variance))
    check(x, (None, bias, mean, variance))


def rest() -> dict[str, tuple[Tensor, Parameters]]:
    """What the kernels do not take."""
    x, p = torch.randn(2, 4, 3, 5), parameters(4)
    return {
        "slice": (torch.randn(2, 8, 3, 5)[:, :4], p),
        "transposed": (x.transpose(2, 3), p),
        "expanded": (x[:, :1].expand(2, 4, 3, 5), p),
        "double": (x.double(), tuple(t.double() for t in p)),
        "bfloat16": (x.bfloat16(), p),
        "empty": (x[:0], p),
        "strided parameter": (x, (torch.randn(8)[::2], *p[1:])),
    }


@pytest.mark.parametrize("name", rest())
def test_the_rest_is_left_to_aten(name):
    check(*rest()[name], by_kernel=False)


def test_sizes_that_eager_refuses():
    for x, p in ((torch.randn(2, 4, 3), parameters(5)), (torch.randn(4), parameters(4))):
        for call in (eager, ours):
            with pytest.raises((RuntimeError, IndexError)):
                call(x, p, relu=True)


def test_gradients_and_autocast_are_those_of_eager():
    x, (weight, bias, mean, variance) = torch.randn(2, 4, 3, 3, requires_grad=True), parameters(4)
    p = (weight.requires_grad_(), bias.requires_grad_(), mean, variance)
    wanted = (x, p[0], p[1])
    actual = torch.autograd.grad(ours(x, p, relu=True).square().sum(), wanted)
    assert_same(actual, torch.autograd.grad(eager(x, p, relu=True).square().sum(), wanted))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        for image in (x.detach(), x.detach().bfloat16()):
            assert_same(ours(image, p, relu=True), eager(image, p, relu=True), tolerance=0)


def test_a_gradient_of_another_layout():
    # aten's own is wrong here, so the truth is what it gives for a contiguous one.
    x, p = torch.randn(2, 4, 3, 3, requires_grad=True), parameters(4)
    gradient = torch.randn(2, 4, 3, 3)
    truth = torch.autograd.grad(eager(x, p, relu=False), x, gradient)
    actual = torch.autograd.grad(ours(x, p, relu=False), x, gradient.to(memory_format=torch.channels_last))
    assert_same(actual[0].contiguous(), truth[0])


def test_the_gradient_is_laid_out_as_the_input():
    # aten's of the batch_norm before is wrong for a batch of one with a stride of 1, if its gradient lies otherwise.
    x, p = torch.empty_strided((1, 8, 5, 4), (1, 1, 32, 8)).normal_().requires_grad_(), parameters(8)
    gradient = torch.randn(1, 8, 5, 4)
    actual = torch.autograd.grad(ours(eager(x, p, relu=False), p, relu=False), x, gradient)
    scale = (p[0] * torch.rsqrt(p[3] + EPS)).view(1, 8, 1, 1)
    assert_same(actual[0].contiguous(), gradient * scale * scale)


def test_the_inputs_stay_as_they_are():
    x, p = torch.randn(2, 4, 3, 3), parameters(4)
    before = [t.clone() for t in (x, *p)]
    ours(x, p, relu=True)
    assert all(torch.equal(t, b) for t, b in zip((x, *p), before))
