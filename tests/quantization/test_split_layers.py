"""Convolutions whose channels are cut into pieces, in int8."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_round_trip, contexts, converted, kinds


class Stage(nn.Module):
    """As CSP networks have it: a piece is added to what layers make of it, the other goes past them."""

    def __init__(self, *sizes: int, groups: int = 1) -> None:
        super().__init__()
        whole = sum(sizes)
        self.sizes = sizes
        self.wide, self.norm = nn.Conv2d(16, whole, 1, groups=groups, bias=False), nn.BatchNorm2d(whole)
        self.first, self.second = nn.Conv2d(sizes[1], 32, 1), nn.Conv2d(32, sizes[1], 3, padding=1)
        self.last = nn.Conv2d(whole, 8, 1)

    def cut(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.split(self.sizes, 1)

    def forward(self, x: Tensor) -> Tensor:
        past, x, *others = self.cut(F.leaky_relu(self.norm(self.wide(x))))
        x = x + self.second(F.relu(self.first(x)))
        return self.last(torch.cat([past, x, *others], 1)).mean((2, 3))


class Halves(Stage):
    def cut(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.chunk(2, 1)


class Equal(Stage):
    def cut(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.split(self.sizes[0], 1)


class Shown(Stage):
    """Somebody else reads the whole."""

    def forward(self, x: Tensor) -> Tensor:
        whole = self.wide(x)
        past, x = self.cut(whole)
        return self.last(torch.cat([past, x + self.second(F.relu(self.first(x)))], 1)).mean((2, 3)) + whole.mean()


def applied(module: torch.jit.ScriptModule) -> list[str]:
    return [d.reason for d in ipex.explain(module) if d.pass_name == "split_layers" and d.applied]


@pytest.mark.parametrize("model", [Stage(32, 48), Halves(48, 48), Equal(32, 32, 32)], ids=["split", "chunk", "equal"])
def test_each_piece_is_a_layer_that_gives_numbers(model, tmp_path):
    torch.manual_seed(0)
    model, x = model.eval(), torch.randn(2, 16, 9, 8)
    with torch.no_grad():
        model.norm.running_var.uniform_(0.5, 2)
    module = converted(model, x)
    assert len(applied(module)) == 1
    found = kinds(module)
    assert found["ipex::quantized_convolution_run"] == 3 + len(model.sizes)
    # The image alone is rounded by an op of its own, and nothing is cut.
    assert found["ipex::quantize"] == 1
    assert not [kind for kind in found if "split" in kind or "chunk" in kind or kind == "prim::ListUnpack"]
    # The last one too, whose mean is taken.
    assert sum("result=uint8" in context.describe() for context in contexts(module)) == 3 + len(model.sizes)
    with torch.no_grad():
        expected = model(x)
        assert (module(x) - expected).norm() / expected.norm() < 0.03
        assert module(x).stride() == expected.stride()
    assert_round_trip(module, tmp_path, x)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Stage(16, 64), "few channels"),
        (Stage(40, 40), "no whole registers"),
        (Stage(32, 32, groups=2), "groups"),
        (Shown(32, 32), None),
    ],
    ids=["few channels", "parts of registers", "groups", "the whole is read"],
)
def test_declines(model, reason, monkeypatch, capfd):
    monkeypatch.setenv("IPEX_VERBOSE", "2")
    model, x = model.eval(), torch.randn(2, 16, 9, 8)
    module = converted(model, x)
    assert applied(module) == []
    lines = [line for line in capfd.readouterr().err.splitlines() if "declined,split_layers" in line]
    assert all(reason in line for line in lines) if reason else not lines
    assert bool(lines) == bool(reason)
    with torch.no_grad():
        expected = model(x)
        assert (module(x) - expected).norm() / expected.norm() < 0.03


def test_pieces_that_layers_alone_read_stay_views_of_numbers():
    class Pieces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.a, self.b = nn.Conv2d(16, 64, 1), nn.Conv2d(32, 8, 1), nn.Conv2d(32, 8, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            a, b = F.silu(self.stem(x)).chunk(2, 1)
            return torch.cat([self.a(a), self.b(b)], 1).mean((2, 3))

    module = converted(Pieces().eval(), torch.randn(2, 16, 9, 8))
    assert applied(module) == []
    assert kinds(module)["ipex::quantized_convolution_run"] == 3


def test_declines_where_the_layout_is_eagers():
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.last = nn.Conv2d(16, 64, 1), nn.Conv2d(32, 8, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            a, b = self.wide(x).chunk(2, 1)
            return a, self.last(b)

    model = Cut().eval()
    for x in (torch.randn(2, 16, 9, 8), torch.randn(2, 16, 9, 8).to(memory_format=torch.channels_last)):
        module = converted(model, x)
        assert applied(module) == []
        with torch.no_grad():
            assert [y.stride() for y in module(x)] == [y.stride() for y in model(x)]


def test_float32_is_left_alone():
    module = ipex.jit_optimize(Halves(48, 48).eval(), torch.randn(2, 16, 9, 8))
    assert kinds(module)["ipex::convolution_run"] == 4
