import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import ipex  # noqa: F401
from support import assert_same

EPS = 1e-3
Parameters = tuple[Tensor, ...]
Tensors = list[Tensor]


def parameters(tensors: Tensors) -> Parameters:
    """Weight, bias, mean and variance."""
    channels = sum(t.size(1) for t in tensors if t.dim() > 1)
    return torch.randn(channels), torch.randn(channels), torch.randn(channels), torch.rand(channels) + 0.1


def eager(tensors: Tensors, p: Parameters, *, relu: bool) -> Tensor:
    y = functional.batch_norm(torch.cat(tensors, 1), p[2], p[3], p[0], p[1], eps=EPS)
    return torch.relu(y) if relu else y


def ours(tensors: Tensors, p: Parameters, *, relu: bool) -> Tensor:
    return torch.ops.ipex.cat_batch_norm(tensors, *p, EPS, relu)


def fast(call) -> bool:
    """Whether the kernel computes it."""
    with torch.profiler.profile() as profile:
        call()
    return not any("in two steps: " in event.name for event in profile.events())


def check(tensors: Tensors, p: Parameters | None = None, *, by_kernel: bool = True) -> None:
    p = p or parameters(tensors)
    for relu in (False, True):
        assert_same(ours(tensors, p, relu=relu), eager(tensors, p, relu=relu))
    assert fast(lambda: ours(tensors, p, relu=True)) == by_kernel


def laid_out(shape: tuple[int, ...], memory_format: torch.memory_format) -> Tensor:
    return torch.randn(shape).to(memory_format=memory_format)


@pytest.mark.parametrize("tail", [(), (1,), (9,), (5, 4), (1, 1), (3, 4, 5)])
@pytest.mark.parametrize("widths", [(1, 32, 7), (8,), (1,), (1, 1), (16, 16)])
@pytest.mark.parametrize("batch", [1, 3])
def test_matches_eager(batch, widths, tail):
    check([torch.randn(batch, width, *tail) for width in widths])


@pytest.mark.parametrize("size", [(5, 4), (1, 5), (7, 2)])
@pytest.mark.parametrize("widths", [(1, 32), (8, 16), (1, 1)])
@pytest.mark.parametrize("batch", [1, 3])
def test_reads_pieces_where_they_lie(batch, widths, size):
    whole = laid_out((batch, 40, *size), torch.channels_last)
    whole[:, : 39 - widths[0]] = torch.nan  # which nobody reads
    dense = laid_out((batch, widths[1], *size), torch.channels_last)
    check([whole[:, 39 - widths[0] : 39], dense])
    check([dense, whole[:, -widths[0] :]])
    check([whole[:, -1:]], by_kernel=False)


@pytest.mark.parametrize("tail", [(5, 4), (7, 7), (1, 5), (1, 1), (3, 4, 5)])
@pytest.mark.parametrize("widths", [(1, 32, 7), (8,), (1,), (1, 1), (16, 16)])
@pytest.mark.parametrize("batch", [1, 3])
def test_keeps_channels_last(batch, widths, tail):
    memory_format = torch.channels_last if len(tail) == 2 else torch.channels_last_3d
    check([laid_out((batch, width, *tail), memory_format) for width in widths])


def test_more_pixels_than_a_thread_takes_at_once():
    for memory_format in (torch.contiguous_format, torch.channels_last):
        check([laid_out((2, width, 37, 29), memory_format) for width in (3, 20, 9)])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45, -0.0])
def test_special_values(value):
    for memory_format in (torch.contiguous_format, torch.channels_last):
        tensors = [laid_out((2, width, 3, 3), memory_format) for width in (2, 9)]
        p = parameters(tensors)
        tensors[0][0, 1], tensors[1][1, 8, 0] = value, value
        check(tensors, p)
        p[0][2] = value
        check([torch.randn_like(t) for t in tensors], p, by_kernel=abs(value) < 1)


def test_parameters_that_are_absent():
    tensors = [torch.randn(2, 4, 3, 3), torch.randn(2, 1, 3, 3)]
    weight, bias, mean, variance = parameters(tensors)
    check(tensors, (None, None, mean, variance))
    check(tensors, (weight, None, mean, variance))
    check(tensors, (None, bias, mean, variance))


def rest() -> dict[str, Tensors]:
    """What the kernels do not take."""
    x, y = torch.randn(2, 4, 3, 5), torch.randn(2, 3, 3, 5)
    channels_last = y.to(memory_format=torch.channels_last)
    return {
        "slice": [x, torch.randn(2, 8, 3, 5)[:, 2:6]],
        "transposed": [x, torch.randn(2, 4, 5, 3).transpose(2, 3)],
        "expanded": [x, y[:, :1].expand(2, 4, 3, 5)],
        "formats": [x, channels_last],
        "formats, the other way round": [channels_last, x],
        "skipped by aten": [x, torch.empty(0), y],
        "without channels": [x, torch.empty(2, 0, 3, 5)],
        "without pixels": [x[:, :, :0], y[:, :, :0]],
        "double": [x, y.double()],
        "bfloat16": [x.bfloat16(), y.bfloat16()],
        "integers": [x, y.int()],
        "negative bit": [x, torch.complex(y, y).conj().imag],
    }


@pytest.mark.parametrize("name", rest())
def test_the_rest_is_done_in_two_steps(name):
    tensors = rest()[name]
    p = parameters(tensors)
    if name == "double":
        p = tuple(t.double() for t in p)
    check(tensors, p, by_kernel=False)


def test_what_eager_refuses():
    x = torch.randn(2, 4, 3, 3)
    for tensors, p in (
        ([], parameters([x])),
        ([x, x], parameters([x])),
        ([x, x[:1]], parameters([x, x])),
        ([x, x[:, :, :2]], parameters([x, x])),
        ([x, x[0]], parameters([x, x])),
        ([torch.randn(4), torch.randn(4)], parameters([x, x])),
    ):
        for call in (eager, ours):
            with pytest.raises((RuntimeError, IndexError, ValueError)):
                call(tensors, p, relu=True)


def test_gradients_and_autocast_are_those_of_eager():
    tensors = [torch.randn(2, 4, 3, 3, requires_grad=True), torch.randn(2, 1, 3, 3)]
    weight, bias, mean, variance = parameters(tensors)
    p = (weight.requires_grad_(), bias.requires_grad_(), mean, variance)
    wanted = (tensors[0], p[0], p[1])
    actual = torch.autograd.grad(ours(tensors, p, relu=True).square().sum(), wanted)
    assert_same(actual, torch.autograd.grad(eager(tensors, p, relu=True).square().sum(), wanted))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        for images in (tensors, [t.bfloat16() for t in tensors], [tensors[0], tensors[1].bfloat16()]):
            assert_same(ours(images, p, relu=True), eager(images, p, relu=True), tolerance=0)


def test_gradients_of_the_tensors_alone():
    tensors = [torch.randn(2, 4, 3, 3), torch.randn(2, 2, 3, 3, requires_grad=True)]
    p = parameters(tensors)
    actual = torch.autograd.grad(ours(tensors, p, relu=True).square().sum(), tensors[1:])
    assert_same(actual, torch.autograd.grad(eager(tensors, p, relu=True).square().sum(), tensors[1:]))


def test_the_inputs_stay_as_they_are():
    tensors = [torch.randn(2, 4, 3, 3), torch.randn(2, 1, 3, 3)]
    p = parameters(tensors)
    before = [t.clone() for t in (*tensors, *p)]
    result = ours(tensors, p, relu=True)
    assert all(torch.equal(t, b) for t, b in zip((*tensors, *p), before))
    result.zero_()
    assert all(torch.equal(t, b) for t, b in zip((*tensors, *p), before))
