"""What is decided for one shape, or from the name of an op without its arguments, must hold for others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from anchored import After, Function, check, each_kind, every_anchor, every_convolution, lively, make, named, trace


@each_kind
@named(
    "function",
    {
        "add": lambda f, x, o: f(x) + o,
        "add, other first": lambda f, x, o: o + f(x),
        "mul": lambda f, x, o: f(x) * o,
        "sub": lambda f, x, o: f(x) - o,
    },
)
def test_equal_shapes_then_broadcast(anchor, function):
    module, x = make(anchor)
    others = [torch.randn_like(x), x[:1].clone(), x[..., :1].clone(), torch.randn(()), torch.randn(3, *x.shape)]
    check(After(module, function), *((x, other) for other in others))


@every_anchor
def test_broadcast_then_equal_shapes(anchor):
    module, x = make(anchor)
    check(After(module, lambda f, x, o: F.relu(f(x) + o)), (x, x[:1].clone()), (x, torch.randn_like(x)))


def of(function: Function) -> Function:
    """For functions that read the anchor's result more than once."""
    return lambda f, x: function(f(x))


def rms_norm(power: int, dim: int) -> Function:
    return of(lambda y: y * torch.rsqrt(y.abs().pow(power).mean(dim, keepdim=True) + 1e-6))


def tanh_gelu(scale: float, cubic: float) -> Function:
    return of(lambda y: 0.5 * y * (1 + torch.tanh(scale * (y + cubic * torch.pow(y, 3)))))


def erf_gelu(divisor: float) -> Function:
    return of(lambda y: y * 0.5 * (1 + torch.erf(y / divisor)))


ARGUMENTS = {
    "add, alpha": lambda f, x: torch.add(f(x), x, alpha=2),
    "add, other first, alpha": lambda f, x: torch.add(x, f(x), alpha=2),
    "sub, alpha": lambda f, x: torch.sub(f(x), x, alpha=2),
    "add_, alpha": lambda f, x: f(x).add_(x, alpha=-1),
    "add a number, alpha": lambda f, x: torch.add(f(x), 2.0, alpha=3),
    "rsub": lambda f, x: torch.rsub(f(x), x, alpha=3),
    "div, floor": lambda f, x: torch.div(f(x) * 0 + 7.5, 2, rounding_mode="floor"),
    "div, trunc": lambda f, x: torch.div(f(x) * 0 - 7.5, 2, rounding_mode="trunc"),
    "divisor": lambda f, x: 1 / (f(x).abs() + 1),
    "pow 3": lambda f, x: f(x).pow(3),
    "pow 2": lambda f, x: f(x).pow(2),
    "pow -1": lambda f, x: (f(x).abs() + 1).pow(-1),
    "pow 0.5": lambda f, x: f(x).abs().pow(0.5),
    "2 to the power": lambda f, x: torch.pow(2, f(x)),
    "gelu": lambda f, x: F.gelu(f(x)),
    "gelu, tanh": lambda f, x: F.gelu(f(x), approximate="tanh"),
    "spelt out gelu": erf_gelu(2**0.5),
    "almost gelu": erf_gelu(2.0),
    "spelt out tanh gelu": tanh_gelu(0.7978845608028654, 0.044715),
    "almost tanh gelu": tanh_gelu(0.7, 0.05),
    "leaky_relu": lambda f, x: F.leaky_relu(f(x), 0.3),
    "leaky_relu, rising to the left": lambda f, x: F.leaky_relu(f(x), -0.3),
    "elu": lambda f, x: F.elu(f(x), 0.7),
    "elu, all arguments": lambda f, x: torch.ops.aten.elu(f(x), 0.7, 1.3, 0.6),
    "selu": lambda f, x: F.selu(f(x)),
    "celu": lambda f, x: F.celu(f(x), 0.7),
    "clamp, min": lambda f, x: f(x).clamp(min=-0.1),
    "clamp, max": lambda f, x: f(x).clamp(max=0.1),
    "clamp, both": lambda f, x: f(x).clamp(-0.1, 0.2),
    "clamp, tensors": lambda f, x: f(x).clamp(x * 0 - 0.1, x * 0 + 0.1),
    "hardtanh": lambda f, x: F.hardtanh(f(x), -0.3, 0.1),
    "softplus": lambda f, x: F.softplus(f(x), 2.0, 0.1),
    "threshold": lambda f, x: F.threshold(f(x), 0.1, -5.0),
    "hardshrink": lambda f, x: F.hardshrink(f(x), 0.1),
    "swish": of(lambda y: torch.sigmoid(y) * y),
    "swish, scaled": of(lambda y: torch.sigmoid(1.7 * y) * y),
    "swish of another": lambda f, x: torch.sigmoid(f(x)) * x,
    "almost hardswish": of(lambda y: y * F.relu6(y + 2) / 6),
    "softmax, last": lambda f, x: torch.softmax(f(x), -1),
    "softmax, first": lambda f, x: torch.softmax(f(x), 0),
    "softmax, float64": lambda f, x: torch.softmax(f(x), -1, dtype=torch.float64),
    "mean, last": lambda f, x: f(x).mean(-1),
    "mean, first": lambda f, x: f(x).mean(0, keepdim=True),
    "sum, all": lambda f, x: f(x).sum(),
    "rms norm": rms_norm(2, -1),
    "rms norm, first": rms_norm(2, 0),
    "rms norm, power 4": rms_norm(4, -1),
    "layer_norm of a sum": lambda f, x: F.layer_norm(f(x) + x, x.shape[-1:]),
    "layer_norm of a sum with alpha": lambda f, x: F.layer_norm(torch.add(f(x), x, alpha=2), x.shape[-1:]),
    "layer_norm of all": lambda f, x: F.layer_norm(f(x) + x, list(x.shape)),
}


@pytest.mark.parametrize("anchor", ["conv2d", "linear", "matmul"])
@named("function", ARGUMENTS)
def test_arguments_count(anchor, function):
    module, x = make(anchor)
    check(After(module, function), (x,), (2 * x,))


class Attention(nn.Module):
    """Attention in which scores may be anything."""

    def __init__(self, scores: Function) -> None:
        super().__init__()
        self.q, self.k, self.v, self.scores = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6), scores

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        products = torch.matmul(self.q(x), self.k(x).transpose(-1, -2))
        return torch.matmul(self.scores(products, mask), self.v(x))


@named(
    "scores",
    {
        "divided": lambda p, m: torch.softmax(p / 4 + m, -1),
        "multiplied": lambda p, m: torch.softmax(p * 0.3 + m, -1),
        "multiplied by the mask": lambda p, m: torch.softmax(p * m, -1),
        "mask times 2": lambda p, m: torch.softmax(torch.add(p, m, alpha=2), -1),
        "the other dimension": lambda p, m: torch.softmax(p * 0.3 + m, -2),
        "the dimension from the front": lambda p, m: torch.softmax(p / 4 + m, 1),
        "masked": lambda p, m: torch.softmax(p.masked_fill(m > 0, -1e9), -1),
        "masked, infinite": lambda p, m: torch.softmax(p.masked_fill(m > 0, float("-inf")), -1),
        "all masked": lambda p, m: torch.softmax(p.masked_fill(m < 99, float("-inf")), -1),
        "rounded": lambda p, m: torch.softmax(torch.div(p, 0.5, rounding_mode="floor") + m, -1),
        "sigmoid": lambda p, m: torch.sigmoid(p + m),
    },
)
def test_attention_of_another_kind(scores):
    masks = (torch.randn(2, 5, 5), torch.randn(5, 5), torch.randn(2, 1, 5), torch.randn(()))
    check(Attention(scores), *((torch.randn(2, 5, 6), mask) for mask in masks))


@pytest.mark.filterwarnings("ignore:.*ops in training mode:UserWarning")
@every_convolution
def test_batch_norm_in_training_mode(anchor):
    module, x = make(anchor)
    mean, var = torch.zeros(4), torch.ones(4)
    check(After(module, lambda f, x: F.batch_norm(f(x), mean.clone(), var.clone(), training=True)), (x,))


@pytest.mark.filterwarnings("ignore:.*ops in training mode:UserWarning")
def test_dropout_in_training_mode_stays():
    module = After(nn.Linear(6, 600), lambda f, x: F.dropout(f(x), 0.5, training=True))
    optimized = ipex.jit_optimize(trace(module, torch.randn(5, 6)))
    assert 0.4 < (optimized(torch.randn(5, 6)) == 0).float().mean() < 0.6


@pytest.mark.parametrize("shapes", [((7, 6), (7, 5, 6)), ((7, 5, 6), (7, 6))])
def test_batch_norm_1d_of_another_rank(shapes):
    model = nn.Sequential(nn.Linear(6, 5), lively(nn.BatchNorm1d(5)), nn.ReLU())
    check(model, *((torch.randn(shape),) for shape in shapes))
