"""FP8 linears on a GPU: the same numbers of 8 bits, multiplied by torch's scaled products where the GPU has them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fp8_model import assert_like_by_hand
from ipex.quantization import fp8
from ipex.quantization.fp8 import DelayedScaling, Format, fp8_autocast, prepare_fp8

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that torch can use")

# The units that multiply 8-bit floats keep some 14 bits of a sum.
SUMS_TOLERANCE = 2e-3


@pytest.fixture
def products(monkeypatch):
    """The dtypes of the scaled products that are computed."""
    found = []
    stock = torch._scaled_mm

    def counted(a: Tensor, b: Tensor, **arguments: object) -> Tensor:
        found.append((a.dtype, b.dtype))
        return stock(a, b, **arguments)

    monkeypatch.setattr(torch, "_scaled_mm", counted)
    return found


@pytest.mark.parametrize("fp8_format", Format)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [(32, 64, 48), (5, 24, 17), (1, 7, 3)])
def test_forward_and_backward_are_those_of_the_rounded_numbers(fp8_format, bias, sizes, products):
    torch.manual_seed(1)
    rows, inputs, outputs = sizes
    linear = prepare_fp8(nn.Linear(inputs, outputs, bias)).cuda()
    for _ in range(3):
        x = (torch.randn(rows, inputs) * 30).cuda().requires_grad_()
        gradient = (torch.randn(rows, outputs) * 1e-3).cuda()
        scale = linear.fp8_scales.scale.cpu()
        with fp8_autocast(enabled=True, fp8_recipe=DelayedScaling(fp8_format=fp8_format)):
            y = linear(x)
        own = torch.stack([scale[0], scale[1], linear.fp8_scales.scale[2].cpu()])
        assert_like_by_hand(y, x, linear, gradient, own, fp8_format.dtypes(), SUMS_TOLERANCE)
    has_kernels = torch.version.hip is None and torch.cuda.get_device_capability() >= (8, 9)
    assert len(products) == (9 if has_kernels and fp8_format != Format.E5M2 else 0)


def test_scales_follow_the_model():
    linear, x = prepare_fp8(nn.Linear(16, 16)), torch.randn(4, 16)
    with fp8_autocast(enabled=True):
        linear(x)
    before = linear.fp8_scales.scale
    linear.cuda()
    with fp8_autocast(enabled=True):
        linear(x.cuda())
    assert linear.fp8_scales.scale.is_cuda
    assert torch.equal(linear.fp8_scales.scale.cpu(), before)
    other = prepare_fp8(nn.Linear(16, 16)).cuda()
    other.load_state_dict(linear.state_dict())
    assert torch.equal(other.fp8_scales.scale.cpu(), before)
    with fp8_autocast(enabled=True, device="cpu"):
        assert torch.equal(linear(x.cuda()), F.linear(x.cuda(), linear.weight, linear.bias))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_under_autocast_and_without(dtype, products):
    x = torch.randn(32, 64, device="cuda")
    linear = prepare_fp8(nn.Linear(64, 48)).cuda()
    exact = F.linear(x, linear.weight, linear.bias)
    for own, autocast in ((x, True), (x.to(dtype), False)):
        for _ in range(2):
            with torch.autocast("cuda", dtype, enabled=autocast), fp8_autocast(enabled=True):
                y = linear(own)
        assert y.dtype == dtype
        assert (y.float() - exact).norm() < 0.1 * exact.norm()
    assert (len(products) == 4) == fp8._product.has_kernel(*[x.to(torch.float8_e4m3fn)] * 2)


def test_a_network_learns():
    torch.manual_seed(0)
    x, target = torch.randn(256, 32).cuda(), torch.randn(256, 8).cuda()

    def loss_after_training(is_fp8: bool) -> float:
        torch.manual_seed(1)
        model = prepare_fp8(nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 8))).cuda()
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        for _ in range(200):
            optimizer.zero_grad()
            with fp8_autocast(enabled=is_fp8):
                loss = F.mse_loss(model(x), target)
            loss.backward()
            optimizer.step()
        return loss.item()

    exact, own = loss_after_training(False), loss_after_training(True)
    print(exact, own)
    assert exact < 0.3
    assert own < exact + 0.1
