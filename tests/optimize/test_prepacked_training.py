"""weights_prepack in training: some convolutions go Winograd's way forward and backward, all else stays as it was."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

import ipex
from ipex._optimize.packed.trained import TrainedConv2d
from optimizer_cases import same_bits
from support import assert_same

# A sum of products rounds in another order, and Winograd's way about twice as much (decision 0012).
TOLERANCE = 2e-5


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def trained(model, **knobs):
    return ipex.optimize(model.train(), optimizer=make_optimizer(model), **knobs)


def pair(layer):
    """A convolution and the same one as it is trained."""
    own, _ = trained(nn.Sequential(copy.deepcopy(layer)))
    assert type(own[0]) is TrainedConv2d
    return layer, own[0]


def gradients(layer, x, weight_of_result):
    x = x.detach().requires_grad_()
    result = layer(x)
    (result * weight_of_result).sum().backward()
    found = [result.detach(), x.grad, *(p.grad for p in layer.parameters())]
    layer.zero_grad()
    return found


def calls_of_own_op(call):
    with torch.profiler.profile() as profile:
        call()
    return sum(event.name == "ipex::trained_convolution" for event in profile.events())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("padding", [0, 1, 2, (2, 1), "same", "valid"])
def test_results_and_gradients_are_those_of_torch(padding, bias, layout):
    layer = nn.Conv2d(64, 32, 3, padding=padding, bias=bias).to(memory_format=layout)
    stock, own = pair(layer)
    x = torch.randn(2, 64, 20, 23).contiguous(memory_format=layout)
    weight = torch.randn_like(stock(x))
    for expected, found in zip(gradients(stock, x, weight), gradients(own, x, weight)):
        assert_same(found, expected, TOLERANCE)
        assert found.stride() == expected.stride()


def test_forward_and_backward_call_the_kernel():
    _, own = pair(nn.Conv2d(64, 64, 3, padding=1))
    x = torch.randn(2, 64, 20, 23, requires_grad=True)
    assert calls_of_own_op(lambda: own(x).sum().backward()) == 2
    assert calls_of_own_op(lambda: own(x.detach()).sum().backward()) == 1  # the image of a first layer wants none


@pytest.mark.parametrize("size", [(1, 64, 5, 5), (64, 20, 23), (0, 64, 20, 20)])
def test_images_that_are_small_single_or_none(size):
    stock, own = pair(nn.Conv2d(64, 64, 3, padding=1))
    x = torch.randn(size)
    weight = torch.randn_like(stock(x))
    for expected, found in zip(gradients(stock, x, weight), gradients(own, x, weight)):
        assert_same(found, expected, TOLERANCE)


def test_what_is_written_through_data_is_the_weight():
    stock, own = pair(nn.Conv2d(64, 64, 3, padding=1))
    x = torch.randn(2, 64, 20, 20)
    for layer in (stock, own):
        layer(x)
        layer.weight.data.mul_(3)
    assert_same(own(x), stock(x), TOLERANCE)


def test_not_finite_pixels_and_gradients():
    stock, own = pair(nn.Conv2d(64, 64, 3, padding=1))
    x = torch.randn(2, 64, 20, 20)
    x[0, 0, 4, 4] = torch.inf
    weight = torch.ones_like(stock(x))
    weight[1, 3, 5, 5] = torch.nan
    for expected, found in zip(gradients(stock, x, weight), gradients(own, x, weight)):
        assert torch.equal(found.isfinite(), expected.isfinite())
        assert torch.equal(found.isnan(), expected.isnan())


def test_gradients_of_gradients():
    stock, own = pair(nn.Conv2d(64, 32, 3, padding=1))

    def second(layer):
        x = torch.ones(2, 64, 20, 20, requires_grad=True)
        (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [x, layer.weight])

    for expected, found in zip(second(stock), second(own)):
        assert_same(found, expected, 1e-4)


def test_other_ways_to_call_it():
    stock, own = pair(nn.Conv2d(64, 32, 3, padding=1))
    x = torch.randn(2, 64, 20, 20)
    expected = stock(x)
    with torch.no_grad():
        assert_same(own(x), expected, TOLERANCE)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(own(x), stock(x))
    assert same_bits(torch.func.vmap(own)(x[None])[0], torch.func.vmap(stock)(x[None])[0])
    assert same_bits(torch.jit.trace(own, x)(x), expected)
    assert same_bits(torch.jit.script(own)(x), expected)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        tangents = [forward_ad.unpack_dual(layer(dual)).tangent for layer in (own, stock)]
    assert_same(*tangents, TOLERANCE)


def test_copies_and_files():
    _, own = pair(nn.Conv2d(64, 64, 3, padding=1))
    x = torch.randn(2, 64, 20, 20)
    file = io.BytesIO()
    torch.save(own, file)
    file.seek(0)
    for other in (copy.deepcopy(own), torch.load(file, weights_only=False)):
        assert type(other) is TrainedConv2d
        assert same_bits(other(x), own(x))
    plain = nn.Conv2d(64, 64, 3, padding=1)
    plain.load_state_dict(own.state_dict())
    assert_same(plain(x), own(x), TOLERANCE)


class Mine(nn.Conv2d):
    """Of another class."""


def test_the_others_stay_and_say_why():
    model = nn.ModuleDict(
        {
            "one_pixel": nn.Conv2d(64, 64, 1),
            "stride": nn.Conv2d(64, 64, 3, stride=2),
            "depthwise": nn.Conv2d(64, 64, 3, groups=64),
            "few": nn.Conv2d(3, 64, 3),
            "linear": nn.Linear(64, 64),
            "mine": Mine(64, 64, 3),
            "reflects": nn.Conv2d(64, 64, 3, padding=1, padding_mode="reflect"),
            "wide": nn.Conv2d(64, 64, 3).double(),
            "norm": nn.BatchNorm2d(64),
        }
    )
    before = {name: type(module) for name, module in model.items()}
    own, _ = trained(model)
    assert {name: type(module) for name, module in own.items()} == before
    said = {d.node: d.reason for d in ipex.explain(own).decisions if d.pass_name == "weights_prepack"}
    assert set(said) == set(before) - {"norm"}
    assert "alone (decision 0034)" in said["linear"]
    assert "3 to 64 channels" in said["few"]
    assert "reflect" in said["reflects"]
    assert "float64" in said["wide"]


def test_off():
    own, _ = trained(nn.Sequential(nn.Conv2d(64, 64, 3)), weights_prepack=False)
    assert type(own[0]) is nn.Conv2d


def test_16_bit_weights_stay():
    own, _ = trained(nn.Sequential(nn.Conv2d(64, 64, 3)), dtype=torch.bfloat16)
    assert type(own[0]) is nn.Conv2d


def test_a_trained_model_is_optimised_for_inference():
    model, _ = trained(nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()))
    x = torch.randn(2, 64, 20, 20)
    model(x)
    model.eval()
    fast = ipex.optimize(model)
    assert "PackedConv2d" in repr(type(fast[0]))
    with torch.no_grad():
        assert_same(fast(x).contiguous(), model(x), TOLERANCE)


def test_steps_of_training_are_those_of_stock():
    torch.manual_seed(0)
    stock = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1)).train()
    own, own_optimizer = trained(stock)
    optimizer = make_optimizer(stock)
    for _ in range(10):
        x = torch.randn(4, 32, 20, 20)
        for model, steps in ((stock, optimizer), (own, own_optimizer)):
            steps.zero_grad()
            model(x).square().mean().backward()
            steps.step()
    for expected, found in zip(stock.parameters(), own.parameters()):
        assert_same(found, expected, 1e-4)
