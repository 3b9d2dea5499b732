"""Under autocast an optimised model has eager's dtypes, and not those of TorchScript, which makes sums float32."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ipex


class Difference(nn.Module):
    """Sums that no layer takes, of tensors whose dtype no graph knows."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 1, 1, bias=False), nn.Conv2d(2, 1, 5, padding=2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.a(x), self.b(x)
        difference = (a + b) - a
        return difference, torch.lerp(difference, b, 0.5)


class OwnAutocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.matmul(x, self.weight)
        return y + x


class AutocastOff(nn.Module):
    """The same layer outside of a region without autocast, inside of it, on its results, and in a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        before = self.linear(x)
        with torch.autocast("cpu", enabled=False):
            inside = self.linear(x)
            chained = self.other(torch.relu(inside))
            branch = self.linear(x) + inside if x.size(0) > 1 else self.linear(chained)
        return before, inside, self.other(torch.relu(inside)), self.linear(chained) + x, branch


def dtypes_under_autocast(module: nn.Module, x: Tensor) -> list[torch.dtype]:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        return [result.dtype for result in module(x)]


@pytest.fixture
def model():
    return Difference().eval()


def test_sums_have_eagers_dtype(model):
    x = torch.randn(2, 2, 7, 5)
    expected = dtypes_under_autocast(model, x)
    assert expected == [torch.bfloat16, torch.bfloat16]
    optimized = ipex.jit_optimize(torch.jit.script(model))
    for _ in range(3):  # TorchScript compiles in the first calls
        assert dtypes_under_autocast(optimized, x) == expected
    with torch.no_grad():
        assert optimized(x)[0].dtype == torch.float32


def test_also_of_files(model, tmp_path):
    x = torch.randn(2, 2, 7, 5)
    optimized = ipex.jit_optimize(torch.jit.script(model))
    optimized.save(tmp_path / "model.pt")
    ipex.aot_save(optimized, tmp_path / "model.ipex")
    for loaded in (ipex.load(tmp_path / "model.pt"), ipex.aot_load(tmp_path / "model.ipex")):
        assert dtypes_under_autocast(loaded, x) == [torch.bfloat16, torch.bfloat16]


def test_a_statement_of_the_model_stays(tmp_path):
    """Optimised, it is casts in the graph; in a file that is not optimised, TorchScript writes them."""
    model, x = OwnAutocast().eval(), torch.randn(2, 4)
    scripted = torch.jit.script(model)
    scripted.save(tmp_path / "model.pt")
    with torch.no_grad():
        exact, eager = x @ model.weight + x, model(x)
        assert not torch.equal(eager, exact)
        for module in (ipex.jit_optimize(scripted), ipex.load(tmp_path / "model.pt")):
            torch.testing.assert_close(module(x), eager, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_region_without_autocast_stays_one(rows, tmp_path):
    model, x = AutocastOff().eval(), torch.randn(rows, 4)
    optimized = ipex.jit_optimize(torch.jit.script(model))
    optimized.save(tmp_path / "model.pt")
    for module in (optimized, ipex.load(tmp_path / "model.pt"), ipex.jit_optimize(optimized)):
        for _ in range(3):
            expected = dtypes_under_autocast(model, x)
            assert expected[:2] == [torch.bfloat16, torch.float32]
            assert dtypes_under_autocast(module, x) == expected
            with torch.no_grad():
                for ours, eager in zip(module(x), model(x)):
                    torch.testing.assert_close(ours, eager, rtol=0, atol=1e-5)


class Nested(nn.Module):
    """The end of the inner region is not that of the outer one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast("cpu", enabled=False):
            with torch.autocast("cpu", enabled=False):
                inner = self.linear(x)
            outer = self.linear(x) + 1
        return inner, outer, self.linear(x) + 2


def test_a_region_without_autocast_holds_another():
    model, x = Nested().eval(), torch.randn(2, 4)
    expected = dtypes_under_autocast(model, x)
    assert expected == [torch.float32, torch.float32, torch.bfloat16]
    assert dtypes_under_autocast(ipex.jit_optimize(torch.jit.script(model)), x) == expected


class Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            y = torch.mm(x, x)
        return y


def test_a_region_that_raises_leaves_autocast_as_it_was():
    optimized = ipex.jit_optimize(torch.jit.script(Raises().eval()))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        for x in (torch.randn(2, 2), torch.randn(2, 3), torch.randn(2, 3)):
            if x.size(1) == 3:
                with pytest.raises(RuntimeError):
                    optimized(x)
            else:
                optimized(x)
            assert torch.is_autocast_enabled("cpu")
