"""Memory that several names share, some of which no schema tells: who writes one of them writes all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import FP32_TOLERANCE, assert_same


class WithBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(3, 4))


class MovedPastWrite(nn.Module):
    """The activation reads what was added to its input's memory."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        v = y.view(2, 6).view(12)
        y.add_(1)
        return torch.relu(v)


class FlattenedPastWrite(nn.Module):
    """Views that are not one: the activation moves before them, one after the other."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        v = y.flatten(0, 1).flatten()
        y.add_(1)
        return torch.tanh(v.flatten())


class TransposedPastWrite(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        v = y.view(3, 2, 2).view(3, 4)
        y.mul_(-2)
        return torch.nn.functional.gelu(v) * 2


class ExpandedPieces(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = (x[:1] * 2).expand(2, 4).chunk(2)
        a.relu_()
        return b * 2, a * 3


class ExpandedRows(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b, c = (x[:1] * 2).expand(3, 4).unbind(0)
        a.add_(1)
        return b * 2, c * 3


class UnfoldedWindows(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b, c, d, e = (x.reshape(12) * 2).unfold(0, 4, 2).unbind(0)
        b.relu_()
        return a * 2 + d, c * 3 + e


class UnfoldedPieces(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b, c, d, e = (x.reshape(12) * 2).unfold(0, 4, 2).split(1)
        b.relu_()
        return a * 2 + d, c * 3 + e


class StridedPieces(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a, b = (x.reshape(12) * 2).as_strided([2, 4], [2, 1]).unbind(0)
        a.relu_()
        return b * 2


class EinsumIsView(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        z = torch.einsum("ij->ji", y)
        y.relu_()
        return z + 0


class EinsumIsWritten(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        torch.einsum("ij->ji", y).add_(1)
        return y * 2


class DequantizedIsInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        torch.dequantize(y).relu_()
        return y * 2


class ConstantAsType(WithBuffer):
    def forward(self, x: Tensor) -> Tensor:
        z = (self.table * 2).type_as(x)
        z.add_(x)
        return z * 1


class ConstantAtLeast(WithBuffer):
    def forward(self, x: Tensor) -> Tensor:
        z = torch.atleast_1d(self.table * 2)
        z.add_(x)
        return z * 1


class ConstantSummedToSize(WithBuffer):
    def forward(self, x: Tensor) -> Tensor:
        z = (self.table * 2).sum_to_size([3, 4])
        z.add_(x)
        return z * 1


class ConstantOfEinsum(WithBuffer):
    def forward(self, x: Tensor) -> Tensor:
        z = torch.einsum("ij->ij", [self.table * 2])
        z.add_(x)
        return z * 1


class ConstantDequantized(WithBuffer):
    def forward(self, x: Tensor) -> Tensor:
        z = torch.dequantize(self.table * 2)
        z.add_(x)
        return z * 1


class StoredAndRead(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        self.state = y
        a = self.state.t().reshape(3, 4)
        b = self.state.t()
        y.add_(1)
        return a + b.reshape(3, 4) * 2


MODELS = [
    MovedPastWrite,
    FlattenedPastWrite,
    TransposedPastWrite,
    ExpandedPieces,
    ExpandedRows,
    UnfoldedWindows,
    UnfoldedPieces,
    StridedPieces,
    EinsumIsView,
    EinsumIsWritten,
    DequantizedIsInput,
    ConstantAsType,
    ConstantAtLeast,
    ConstantSummedToSize,
    ConstantOfEinsum,
    ConstantDequantized,
    StoredAndRead,
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_write_is_seen_by_all_who_share_the_memory(model):
    scripted = torch.jit.script(model().eval())
    with torch.no_grad():
        optimized = ipex.jit_optimize(scripted)
        for _ in range(3):
            x = torch.randn(3, 4)
            assert_same(optimized(x.clone()), scripted(x.clone()), FP32_TOLERANCE)


def table_of(x: Tensor) -> Tensor:
    return torch.cos(torch.arange(x.size(0)).float() * 2) + 1


class Appended(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        kept: list[Tensor] = []
        table = table_of(x)
        kept.append(table)
        kept.append(x.sum(1) + table)
        return kept


class InADict(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        table = table_of(x)
        kept: dict[str, Tensor] = {}
        kept["table"] = table
        kept["sum"] = x.sum(1) + table
        return kept


class InATuple(nn.Module):
    def forward(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        table = table_of(x)
        kept: list[tuple[Tensor, Tensor]] = []
        kept.append((table, x.sum(1) + table))
        return kept


class InAnAttribute(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        table = table_of(x)
        self.kept = table
        return self.kept, x.sum(1) + table


class SetItem(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        table = table_of(x)
        kept = [x, x]
        kept[1] = table
        kept[0] = x.sum(1) + table
        return kept


def overwrite(result: Any) -> None:
    """As a caller may with what it was given."""
    if isinstance(result, Tensor):
        result.fill_(7)
        return
    for part in result.values() if isinstance(result, dict) else result:
        overwrite(part)


def listed(result: Any) -> Any:
    if isinstance(result, Tensor):
        return result.clone()
    return [listed(part) for part in (result.values() if isinstance(result, dict) else result)]


@pytest.mark.parametrize("model", [Appended, InADict, InATuple, InAnAttribute, SetItem], ids=lambda m: m.__name__)
def test_what_the_caller_gets_is_not_kept_for_the_next_call(model):
    scripted = torch.jit.script(model().eval())
    optimized = ipex.jit_optimize(scripted)
    x = torch.randn(3, 4)
    for _ in range(4):
        ours, expected = optimized(x.clone()), scripted(x.clone())
        assert_same(listed(ours), listed(expected), FP32_TOLERANCE)
        overwrite(ours)
        overwrite(expected)


class SetAndRead(nn.Module):
    """What is read of an attribute is what was set last, wherever elementwise ops are gathered."""

    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2 + 1
        self.state = self.state * 0.5 + y.mean([0])
        return y.masked_fill(self.state > 0.3, -1.0)


class SetBetween(nn.Module):
    def __init__(self):
        super().__init__()
        self.state = torch.zeros(1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2 + 1
        self.state = y
        z = self.state
        return y + z.sum(), z


class SetInLoop(nn.Module):
    """What the next round reads is what this one set."""

    def __init__(self):
        super().__init__()
        self.state = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            y = x * 2 + 1
            self.state = y.sum()
            x = y.masked_fill(self.state > 0.3, -1.0)
        return x


@pytest.mark.parametrize("model", [SetAndRead, SetBetween, SetInLoop], ids=lambda m: m.__name__)
def test_a_read_of_an_attribute_stays_behind_the_write(model):
    scripted = torch.jit.script(model().eval())
    optimized = ipex.jit_optimize(scripted)
    for _ in range(3):
        x = torch.randn(3, 4)
        assert_same(optimized(x.clone()), scripted(x.clone()), FP32_TOLERANCE)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(2, 2, 1)

    def forward(self, x: Tensor) -> list[Tensor]:
        y = self.conv(x)
        both = [y]
        both.append(y)
        return both


def test_a_tensor_that_is_put_into_a_list_twice_is_one_tensor():
    first, second = ipex.jit_optimize(torch.jit.script(Twice().eval()))(torch.randn(2, 2, 3, 4))
    assert first.data_ptr() == second.data_ptr()
    assert first.stride() == second.stride()
