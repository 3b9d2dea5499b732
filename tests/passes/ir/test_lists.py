"""A list whose elements change after it is made: no pass may read them where it was made."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import FP32_TOLERANCE, assert_rewrites, assert_same, graph_ir, kinds


class ViewOfSetSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        sizes = [x.size(0), 2, 6]
        sizes[1] = 3
        sizes[2] = 4
        return torch.relu(x.view(sizes))


class LinearOfSetSize(nn.Module):
    """Between a view and a view by the same list, whose first element alone is known when the list is made."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        n = [x.size(0), 2, 4]
        n[1] = 3
        return self.linear(torch.relu(x).view(n)).view(n)


class ViewOfSizeSetInBranch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        sizes = [x.size(0), 2, 6]
        if x.size(0) > 1:
            sizes[1] = 3
            sizes[2] = 4
        return x.reshape([x.size(0), 12]).view(sizes)


class ViewOfSizeSetInLoop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        sizes = [x.size(0), 12, 1]
        for _ in range(2):
            sizes[1] = sizes[1] // 2
            sizes[2] = sizes[2] * 2
        return x.reshape([x.size(0), 4, 3]).view(sizes)


class ViewOfAppended(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        sizes = [x.size(0)]
        sizes.append(3)
        sizes.append(4)
        y = x.view(sizes)
        return y.transpose(1, 2).reshape([x.size(0), 4, 3])


class WindowsOfSetSize(nn.Module):
    """Views, a permutation and a copy that are gathered into one op."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        sizes = [x.size(0), 2, 2, 3]
        sizes[1] = 3
        sizes[3] = 2
        return self.linear(x.view(sizes).transpose(1, 2).contiguous().view(x.shape))


class SizeOfView(nn.Module):
    """What was given as a size when the list was made is no size of the result."""

    def forward(self, x: Tensor) -> Tensor:
        sizes = [x.size(0), 2, 6]
        sizes[1] = 3
        sizes[2] = 4
        y = x.view(sizes)
        return y * float(y.size(1)) + float(y.size(2))


class ExtendedInPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        sizes = [x.size(0), 3]
        sizes += [4]
        return x.view(sizes).permute(0, 2, 1).reshape(x.size(0), 12)


class Sorted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        sizes = [6, 2, 2]
        sizes.sort()
        return x.view(sizes)


class ThroughAnotherName(nn.Module):
    """A second list holds the first one."""

    def forward(self, x: Tensor) -> Tensor:
        sizes = [x.size(0), 2, 6]
        both = [sizes, sizes]
        both[0][1] = 3
        both[1][2] = 4
        return x.view(sizes)


class ThroughABranch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        sizes = [x.size(0), 2, 6]
        other = sizes if x.size(0) > 1 else [0, 0, 0]
        other[1] = 3
        other[2] = 4
        return x.view(sizes)


class HeldInABranch(nn.Module):
    """A list that a branch puts into another one."""

    def forward(self, x: Tensor) -> Tensor:
        sizes = [x.size(0), 2, 6]
        held = [sizes] if x.size(0) > 1 else [[0, 0, 0]]
        held[0][1] = 3
        held[0][2] = 4
        return x.view(sizes)


class Stored(nn.Module):
    """A list that an attribute holds."""

    def __init__(self):
        super().__init__()
        self.held = torch.jit.Attribute([0], list[int])

    def forward(self, x: Tensor) -> Tensor:
        sizes = [x.size(0), 2, 6]
        self.held = sizes
        self.held[1] = 3
        self.held[2] = 4
        y = x.view(sizes)
        return y * float(y.size(1))


class ThroughADict(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        sizes = [x.size(0), 2, 6]
        known = {"sizes": sizes}
        known["sizes"][1] = 3
        known["sizes"][2] = 4
        return x.view(sizes)


class PadSet(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pads = [0, 1, 0, 0]
        pads[3] = 2
        return F.pad(x, pads)


class RollSet(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        shifts = [1, 1]
        shifts[0] = 2
        return torch.roll(x.reshape(x.size(0), 3, 4), shifts, [1, 2])


class Attention(nn.Module):
    """The probabilities are viewed as a list says that changes."""

    def forward(self, x: Tensor) -> Tensor:
        q = x.reshape(x.size(0), 3, 4)
        sizes = [x.size(0), 1, 3, 9]
        sizes[3] = 3
        scores = torch.matmul(q, q.transpose(1, 2)).view(sizes)
        return torch.matmul(torch.softmax(scores, dim=-1), q.unsqueeze(1))


class CatOfAppended(nn.Module):
    """The dtype of what is joined is that of all."""

    def forward(self, x: Tensor) -> Tensor:
        parts = [x]
        parts.append(x.double())
        return torch.cat(parts)


class CatOfAppendedAndCast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        parts = [x.to(torch.bfloat16)]
        parts.append(x)
        return torch.cat(parts).to(torch.float32)


class CatOfReplaced(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        halves = x.chunk(2, dim=-1)
        parts = [-halves[1], halves[0]]
        parts[0] = halves[0] * 2
        return x * 2 + torch.cat(parts, dim=-1) * 3


class GrownRotary(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        halves = x.chunk(2, dim=-1)
        parts = [-halves[1], halves[0]]
        turned = torch.cat(parts, dim=-1)
        parts.append(x)
        return x * 2 + turned * 3 + torch.cat(parts, dim=-1).sum()


class GrownBeforeRotary(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        halves = x.chunk(2, dim=-1)
        parts = [-halves[1], halves[0]]
        parts.append(x)
        return torch.cat(parts, dim=-1)[..., : x.size(-1)] * 3 + x * 2


class Einsum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.reshape(x.size(0), 3, 4)
        factors = [y, y]
        factors[1] = y * 2
        return torch.einsum("bij,bkj->bik", factors)


class EinsumOfWeight(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12, 5))

    def forward(self, x: Tensor) -> Tensor:
        factors = [x, self.weight]
        factors[1] = self.weight * 2
        return torch.einsum("bi,ij->bj", factors)


class StackGrown(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        parts = [x]
        for i in range(3):
            parts.append(x * i)
        return torch.stack(parts).sum(0)


class Returned(nn.Module):
    """What the caller does with a list comes after all that the graph reads of it."""

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        parts = [x, x * 2]
        return torch.cat(parts), parts


MODELS = [
    LinearOfSetSize,
    ViewOfSetSize,
    ViewOfSizeSetInBranch,
    ViewOfSizeSetInLoop,
    ViewOfAppended,
    WindowsOfSetSize,
    SizeOfView,
    ExtendedInPlace,
    Sorted,
    ThroughAnotherName,
    ThroughABranch,
    HeldInABranch,
    Stored,
    ThroughADict,
    PadSet,
    RollSet,
    Attention,
    CatOfAppended,
    CatOfAppendedAndCast,
    CatOfReplaced,
    GrownRotary,
    GrownBeforeRotary,
    Einsum,
    EinsumOfWeight,
    StackGrown,
    Returned,
]


@pytest.mark.parametrize("disabled", [[], ["hold_changing_lists"]])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_list_that_changes_is_read_when_it_is_used(model, disabled):
    scripted = torch.jit.script(model().eval())
    optimized = ipex.jit_optimize(scripted, disable=disabled)
    for x in (torch.randn(2, 12), torch.randn(2, 12)):
        expected = scripted(copy.deepcopy(x))
        for _ in range(3):
            assert_same(optimized(copy.deepcopy(x)), expected, FP32_TOLERANCE)


def test_the_report_names_lists_that_have_elements():
    """One that is made empty grows where its elements are made: no pass could have read them."""
    lines = ("%full : Tensor[] = prim::ListConstruct(%x)", "%empty : Tensor[] = prim::ListConstruct()")
    for name, count in (("full", 1), ("empty", 0)):
        grows = (f"%grown : Tensor[] = aten::append(%{name}, %x)", f"%y : Tensor = aten::cat(%{name}, %zero)")
        text = graph_ir("%x : Tensor", "%zero : int = prim::Constant[value=0]()", *lines, *grows, returns="%y")
        result = assert_rewrites("hold_changing_lists", text)
        assert [d.reason for d in result.report] == ["the list changes after it is made"] * count


class LinearOfView(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, list[int]]:
        sizes = [x.size(0), 3, 4]
        return torch.relu(self.linear(x.view(sizes))), sizes


def test_a_list_that_only_the_caller_may_change_is_still_read():
    optimized = ipex.jit_optimize(torch.jit.script(LinearOfView().eval()))
    assert kinds(optimized)["prim::unchecked_cast"] == 0
