"""Modes of Python's see the ops of aten, and tensors without memory are not read."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import ipex
from support import SeenOps, assert_same


class Attention(nn.Module):
    def forward(self, x):
        return torch.softmax(x @ x.transpose(-2, -1) / 4.0, -1) @ x


class Recurrent(nn.Module):
    def __init__(self, kind) -> None:
        super().__init__()
        self.layer = kind(8, 8)

    def forward(self, x):
        return self.layer(x)[0]


class Joined(nn.Module):
    def forward(self, x):
        return torch.cat([x, F.avg_pool2d(x, 3, 1, 1), F.max_pool2d(x, 3, 1, 1)], 1)


# No two constants of one shape: TorchScript compares their values, of fake ones too.
MODELS = {
    "linear": (nn.Linear(8, 4), (3, 8)),
    "linears": (nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)), (3, 8)),
    "linear of many rows": (nn.Linear(64, 64), (40, 64)),
    "convolution": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), (2, 3, 9, 9)),
    "winograd": (nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.SiLU()), (1, 32, 16, 16)),
    "depthwise block": (
        nn.Sequential(
            nn.Conv2d(16, 64, 1),
            nn.ReLU6(),
            nn.Conv2d(64, 64, 3, padding=1, groups=64),
            nn.ReLU6(),
            nn.Conv2d(64, 16, 1),
        ),
        (1, 16, 56, 56),
    ),
    "norms": (nn.Sequential(nn.LayerNorm(8, elementwise_affine=False), nn.Linear(8, 8), nn.Softmax(-1)), (3, 8)),
    "attention": (Attention(), (2, 4, 5, 8)),
    "lstm": (Recurrent(nn.LSTM), (4, 2, 8)),
    "gru": (Recurrent(nn.GRU), (4, 2, 8)),
    "cat and pooling": (Joined(), (1, 4, 8, 8)),
}


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def case(request):
    model, shape = request.param
    x = torch.randn(shape)
    with torch.no_grad():
        yield model.eval(), ipex.jit_optimize(torch.jit.script(model)), x


def test_a_mode_sees_the_ops_of_aten(case):
    model, optimized, x = case
    with SeenOps() as mode:
        y = optimized(x)
    assert any(name.startswith("aten.") for name in mode.seen)
    assert_same(y, model(x))


@pytest.mark.parametrize("is_warm", [False, True])
def test_fake_tensors_get_fake_results(case, tmp_path, is_warm):
    model, optimized, x = case
    optimized.save(str(tmp_path / "model.pt"))
    loaded = ipex.load(tmp_path / "model.pt")  # packs its weights at the first call
    if is_warm:
        loaded(x)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        y = loaded(mode.from_tensor(x))
        of_real = loaded(x)
    assert type(y) is type(of_real) is torch._subclasses.FakeTensor
    expected = model(x)
    assert y.shape == of_real.shape == expected.shape
    assert_same(loaded(x), expected)  # is none the worse for it
