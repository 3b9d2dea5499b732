"""What a module's tensors share, and who writes them, is in an optimised model as in eager: call after call.

Each model is called several times, beside eager. Where `writes` is given, the caller writes to what a call returns.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_same, kinds


def tensors_of(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    parts = result.values() if isinstance(result, dict) else result
    return [tensor for part in parts for tensor in tensors_of(part)] if isinstance(result, (tuple, list, dict)) else []


def two_of(make: Callable[[], nn.Module]) -> list[nn.Module]:
    """Two equal models. (A deep copy of a parameter doesn't share memory with the copy of its view.)"""
    models = []
    for _ in range(2):
        torch.manual_seed(5)
        models.append(make().eval())
    return models


def dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def check_calls(
    make: Callable[[], nn.Module],
    x: Tensor,
    *,
    script: bool = True,
    writes: bool = False,
    frozen: bool = False,
    calls: int = 4,
) -> torch.jit.ScriptModule:
    """Call eager, the optimised model and one optimised again in turn: the same results, and the original as it was."""
    model, eager = two_of(make)
    with torch.no_grad():
        module = torch.jit.script(model) if script else torch.jit.trace(model, x.clone(), check_trace=False)
        if not script:  # tracing has run it once
            for ours, theirs in zip(model.state_dict().values(), eager.state_dict().values()):
                ours.copy_(theirs)
        if frozen:
            module = torch.jit.freeze(module)
        before = {name: value.clone() for name, value in module.state_dict().items()}
        optimized = ipex.jit_optimize(module)
        ours = [optimized, ipex.jit_optimize(optimized)]
        for _ in range(calls):
            expected = eager(x.clone())
            results = [one(x.clone()) for one in ours]
            for result in results:
                assert_same(tensors_of(result), tensors_of(expected))
            if writes:
                for written in tensors_of([expected, results]):
                    written.add_(1)
        for name, value in module.state_dict().items():
            assert torch.equal(dense(value), dense(before[name]))
        buffers = dict(eager.named_buffers())
        for name, value in optimized.named_buffers():
            if name in buffers:
                assert_same(dense(value), dense(buffers[name]))
    return optimized


class OneBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("buf", torch.arange(1.0, 5.0))


# What one method writes is no constant in another.


class SetsMask(OneBuffer):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.buf

    @torch.jit.export
    def set_mask(self, mask: Tensor) -> None:
        self.buf = mask


class ScalesMask(OneBuffer):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.buf

    @torch.jit.export
    def scale_mask(self, by: Tensor) -> None:
        self.buf.mul_(by)

    @torch.jit.export
    def scale_weight(self, by: Tensor) -> None:
        self.linear.weight.view(-1)[:4].mul_(by)


@pytest.mark.parametrize(
    ("model", "method"), [(SetsMask, "set_mask"), (ScalesMask, "scale_mask"), (ScalesMask, "scale_weight")]
)
@pytest.mark.parametrize("again", [False, True])
def test_what_another_method_writes_is_no_constant(model, method, again, tmp_path):
    model, x = model().eval(), torch.randn(2, 4)
    with torch.no_grad():
        scripted = torch.jit.script(copy.deepcopy(model))
        optimized = ipex.jit_optimize(ipex.jit_optimize(scripted) if again else scripted)
        optimized.save(tmp_path / "model.pt")
        for module in (optimized, ipex.load(tmp_path / "model.pt")):
            eager = copy.deepcopy(model)
            for i in range(3):
                assert_same(module(x), eager(x))
                for one in (module, eager):
                    getattr(one, method)(torch.full((4,), 2.0 + i))
                assert_same(module(x), eager(x))
        assert_same(scripted(x), model(x))


class SetsInSubmodule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.other = OneBuffer(), OneBuffer()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner.linear(x) * self.inner.buf + self.other.buf

    @torch.jit.export
    def reset(self) -> None:
        self.inner.buf = torch.zeros(4)


def test_what_another_method_sets_in_a_submodule_is_no_constant():
    model, x = SetsInSubmodule().eval(), torch.randn(2, 4)
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.script(model))
        assert_same(optimized(x), model(x))
        optimized.reset()
        model.reset()
        for _ in range(3):
            assert_same(optimized(x), model(x))
            optimized.inner.buf.add_(1)  # the zeros are no constant either
            model.inner.buf.add_(1)
        optimized.reset()
        model.reset()
        assert_same(optimized(x), model(x))
    assert "other" not in dict(optimized.named_children())


# Memory that is shared stays shared.


class TwoBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.arange(6.0))
        self.register_buffer("b", self.a.view(2, 3)[1])

    def forward(self, x: Tensor) -> Tensor:
        self.a.add_(x.sum())
        return self.b + x[:3]


class BufferOfASubmodule(OneBuffer):
    def __init__(self) -> None:
        super().__init__()
        self.inner = OneBuffer()
        self.inner.buf = self.buf

    def forward(self, x: Tensor) -> Tensor:
        self.inner.buf.mul_(0.5)
        return self.linear(x) * self.buf


class CacheAndRow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(3, 4))
        self.register_buffer("row", self.cache[1])

    def forward(self, x: Tensor) -> Tensor:
        self.row.copy_(x)
        self.cache[2].add_(1)
        return self.cache.t().contiguous()


class ViewOfAWeight(OneBuffer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("corner", self.linear.weight.detach()[:2, 1:3])

    def forward(self, x: Tensor) -> Tensor:
        self.corner.add_(1)
        return self.linear(x)


class InAList(OneBuffer):
    def __init__(self) -> None:
        super().__init__()
        self.parts = [self.buf, torch.ones(4)]

    def forward(self, x: Tensor) -> Tensor:
        self.parts[0].add_(x)
        self.parts[1].add_(1)
        return self.linear(x) * self.buf + self.parts[1]


class InADict(OneBuffer):
    def __init__(self) -> None:
        super().__init__()
        self.parts = {"a": self.buf}

    def forward(self, x: Tensor) -> Tensor:
        self.buf.add_(x)
        return self.linear(x) * self.parts["a"]


class InATuple(OneBuffer):
    def __init__(self) -> None:
        super().__init__()
        self.parts = (self.buf, torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.buf.add_(x)
        return self.linear(x) * self.parts[0] + self.parts[1]


class RegisteredTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = OneBuffer()
        self.second = self.first

    def forward(self, x: Tensor) -> Tensor:
        self.first.buf.add_(x)
        return self.second.linear(x) * self.second.buf


class InABranch(OneBuffer):
    def forward(self, x: Tensor) -> Tensor:
        which = self.buf
        if x.size(0) > 1:
            which = self.linear.bias
        which.add_(1)
        return self.linear(x) + self.buf


class InALoop(OneBuffer):
    def forward(self, x: Tensor) -> Tensor:
        y = self.linear.bias
        for _ in range(x.size(0)):
            y = y.view(2, 2).view(4)
        y.add_(1)
        return self.linear(x) + self.buf


class AppendedToAList(OneBuffer):
    def forward(self, x: Tensor) -> Tensor:
        parts = [x]
        parts.append(self.linear.weight)
        parts[-1].add_(1)
        return self.linear(x)


class ResizedInPlace(OneBuffer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("same", self.buf)

    def forward(self, x: Tensor) -> Tensor:
        self.buf.unsqueeze_(0)
        return self.linear(x) + self.same.sum() + self.same.dim()


SHARE = [
    TwoBuffers,
    BufferOfASubmodule,
    CacheAndRow,
    ViewOfAWeight,
    InAList,
    InADict,
    InATuple,
    RegisteredTwice,
    InABranch,
    InALoop,
    AppendedToAList,
    ResizedInPlace,
]


@pytest.mark.parametrize("model", SHARE)
def test_shared_memory_stays_shared(model):
    check_calls(model, torch.arange(4.0) if model is not TwoBuffers else torch.arange(6.0))


@pytest.mark.parametrize("model", [TwoBuffers, BufferOfASubmodule, CacheAndRow, ViewOfAWeight, RegisteredTwice])
@pytest.mark.parametrize("frozen", [False, True])
def test_also_in_traces_and_frozen_ones(model, frozen):
    x = torch.arange(4.0) if model is not TwoBuffers else torch.arange(6.0)
    check_calls(model, x, script=False, frozen=frozen)


@pytest.mark.parametrize("model", SHARE)
def test_also_in_files(model, tmp_path):
    x = torch.arange(4.0) if model is not TwoBuffers else torch.arange(6.0)
    with torch.no_grad():
        torch.jit.script(two_of(model)[0]).save(tmp_path / "model.pt")
        optimized = ipex.jit_optimize(torch.jit.load(tmp_path / "model.pt"))
        optimized.save(tmp_path / "optimized.pt")
        for module in (optimized, ipex.load(tmp_path / "optimized.pt")):
            eager = two_of(model)[0]
            for _ in range(3):
                assert_same(module(x.clone()), eager(x.clone()))


class Kinds(nn.Module):
    """Two names for each kind of memory."""

    def __init__(self) -> None:
        super().__init__()
        tensors = {
            "strided": torch.arange(24.0).view(2, 3, 4).transpose(0, 2)[1:],
            "expanded": torch.ones(1, 3).expand(2, 3),
            "empty": torch.empty(0, 3),
            "scalar": torch.tensor(2.0),
            "meta": torch.empty(2, 3, device="meta"),
            "quantized": torch.quantize_per_tensor(torch.randn(2, 3), 0.1, 3, torch.quint8),
            "channels": torch.quantize_per_channel(torch.randn(2, 3), torch.ones(2), torch.zeros(2), 0, torch.qint8),
            "sparse": torch.eye(3).to_sparse(),
            "csr": torch.eye(3).to_sparse_csr(),
            "mkldnn": torch.ones(2, 3).to_mkldnn(),
            "conjugate": torch.ones(2, dtype=torch.complex64).conj(),
            "bits": torch.ones(2, dtype=torch.bfloat16),
        }
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)
            self.register_buffer("same_" + name, tensor)
        self.parameter = nn.Parameter(torch.ones(2))
        self.still = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {
            "strided": self.strided,
            "expanded": self.expanded,
            "empty": self.empty,
            "scalar": self.scalar,
            "meta": self.meta,
            "quantized": self.quantized,
            "channels": self.channels,
            "sparse": self.sparse,
            "csr": self.csr,
            "mkldnn": self.mkldnn,
            "conjugate": self.conjugate,
            "bits": self.bits,
            "same_strided": self.same_strided,
            "parameter": self.parameter,
            "still": self.still,
        }


@pytest.mark.filterwarnings("ignore")  # of torch: some kinds are beta, or deprecated
def test_tensors_of_any_kind_are_copied_as_they_are():
    model = Kinds().eval()
    module = torch.jit.script(model)
    optimized = ipex.jit_optimize(module)
    given, got = module(torch.ones(1)), optimized(torch.ones(1))
    for name, tensor in given.items():
        ours = got[name]
        assert (ours.dtype, ours.layout, ours.device, ours.shape) == (
            tensor.dtype,
            tensor.layout,
            tensor.device,
            tensor.shape,
        ), name
        assert ours.requires_grad == tensor.requires_grad, name
        assert ours.is_conj() == tensor.is_conj()
        if tensor.layout == torch.strided:
            assert (ours.stride(), ours.storage_offset()) == (tensor.stride(), tensor.storage_offset()), name
        if name != "meta":
            dense, expected = (t.to_dense() if t.layout != torch.strided else t for t in (ours, tensor))
            assert (
                torch.equal(dense.dequantize(), expected.dequantize())
                if dense.is_quantized
                else torch.equal(dense, expected)
            )
        if tensor.layout == torch.strided and name not in ("meta", "empty"):
            assert ours.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr(), name
    assert got["same_strided"].data_ptr() == got["strided"].data_ptr()


class Sparse(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        dense = torch.eye(4) * 2
        self.register_buffer("matrix", dense.to_sparse() if kind == "sparse" else dense.to_sparse_csr())

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.mm(self.matrix, x))


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("kind", ["sparse", "csr"])
@pytest.mark.parametrize("script", [True, False])
def test_a_sparse_buffer(kind, script):
    check_calls(lambda: Sparse(kind), torch.randn(4, 4), script=script)


class Ragged(nn.Module):
    """A nested tensor is a class of Python: what it holds lies elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Buffer(torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged))

    def forward(self, x: Tensor) -> Tensor:
        self.rows.add_(1)
        return torch.relu(x)


def test_a_nested_buffer():
    scripted = torch.jit.script(Ragged().eval())
    optimized = ipex.jit_optimize(scripted)
    optimized(torch.randn(2, 3))
    assert scripted.rows.values().eq(1).all()
    assert optimized.rows.values().eq(2).all()


# What is computed from constants is new at each call.


class Accumulates(OneBuffer):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        z = self.buf * 2
        if self.how == "type_as":
            z = z.type_as(x)
        elif self.how == "atleast_1d":
            z = torch.atleast_1d(z)
        elif self.how == "sum_to_size":
            z = z.sum_to_size([4])
        elif self.how == "einsum":
            z = torch.einsum("i->i", [z])
        elif self.how == "contiguous":
            z = z.contiguous()
        elif self.how == "list":
            parts = [z, x]
            z = parts[0]
        elif self.how == "zeros":
            z = torch.zeros(4).type_as(x)
        elif self.how == "literal in 16 bits":
            z = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.bfloat16)
        elif self.how == "literal":
            z = torch.tensor([1.0, 2.0, 3.0, 4.0]).type_as(x)
        z.add_(x)
        return self.linear(z.float())


HOWS = [
    "type_as",
    "atleast_1d",
    "sum_to_size",
    "einsum",
    "contiguous",
    "list",
    "zeros",
    "literal",
    "literal in 16 bits",
]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("script", [True, False])
def test_a_constant_that_is_written_is_new_at_each_call(how, script):
    if not script and how.startswith("literal"):
        pytest.skip("tracing writes to the literal")
    check_calls(lambda: Accumulates(how), torch.randn(4), script=script)


class WeightIsWritten(OneBuffer):
    """The same value is a weight, and overwritten through an alias that no schema shows."""

    def forward(self, x: Tensor) -> Tensor:
        w = self.linear.weight * 2
        first = F.linear(x, w)
        z = w.type_as(x)
        z.add_(1)
        return F.linear(first, w) + z.sum()


@pytest.mark.parametrize("script", [True, False])
def test_a_computed_weight_that_is_written(script):
    check_calls(WeightIsWritten, torch.randn(2, 4), script=script)


# What a caller gets, a caller may write.


class ReturnsBuffer(OneBuffer):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x) * self.buf, self.buf


class ReturnsView(OneBuffer):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x) * self.buf, self.buf.view(2, 2)[1:]


class ReturnsWeight(OneBuffer):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.linear(x), self.linear.weight.t()


class ReturnsInAList(OneBuffer):
    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.linear(x) * self.buf, self.buf.type_as(x)]


class ReturnsInADict(OneBuffer):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"y": self.linear(x) * self.buf, "buf": self.buf}


class ReturnsListAttribute(OneBuffer):
    def __init__(self) -> None:
        super().__init__()
        self.parts = [self.buf, torch.ones(4)]

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return self.linear(x) * self.buf * self.parts[1], self.parts


class ReturnsLiterals(OneBuffer):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.tensor([1.0, 2.0]), torch.zeros(3), torch.ones(2) * 3 + 1


class ReturnsComputed(OneBuffer):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.linear.weight * 2, self.linear.weight.t() + self.linear.weight, self.linear(x)


class ReturnsChosen(OneBuffer):
    """What ops of several results make."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values, places = self.buf.topk(2)
        return values, places, self.linear.weight.sort(1)[1], self.linear.weight.max(1)[0]


class ReturnsFromABranch(OneBuffer):
    def forward(self, x: Tensor) -> Tensor:
        y = self.buf
        if x.dim() == 1:
            y = self.linear.bias
        return y


RETURN = [
    ReturnsBuffer,
    ReturnsView,
    ReturnsWeight,
    ReturnsInAList,
    ReturnsInADict,
    ReturnsListAttribute,
    ReturnsLiterals,
    ReturnsComputed,
    ReturnsChosen,
    ReturnsFromABranch,
]


@pytest.mark.parametrize("model", RETURN)
@pytest.mark.parametrize("x", [torch.randn(4), torch.randn(2, 4)], ids=["row", "rows"])
def test_what_a_caller_writes_is_seen_as_in_eager(model, x):
    check_calls(model, x, writes=True)


@pytest.mark.filterwarnings("ignore:torch.tensor results are registered as constants")
@pytest.mark.parametrize(
    "model", [ReturnsBuffer, ReturnsView, ReturnsWeight, ReturnsLiterals, ReturnsComputed, ReturnsChosen]
)
def test_also_of_a_trace(model):
    check_calls(model, torch.randn(4), script=False, writes=True)


class ReturnsAList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen = [1]

    def forward(self, x: Tensor) -> list[int]:
        return self.seen


def test_a_list_that_is_returned_is_not_that_of_the_original():
    module, x = torch.jit.script(ReturnsAList().eval()), torch.ones(1)
    ipex.jit_optimize(module)(x)
    assert module(x) == module.seen == [1]


class SetsAnAlias(nn.Module):
    """What is stored is written later, and what was read back shares its memory."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("st", torch.zeros(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x)
        self.st = y
        a = self.st.t().reshape(3, 2)
        y.add_(1)
        return a + self.st.sum()


class SetsInABranch(SetsAnAlias):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x)
        if x.size(0) > 1:
            self.st = y
        a = torch.sigmoid(self.st.view(-1))
        y.add_(1)
        return a + torch.sigmoid(self.st.view(-1))


class StoresAndMoves(SetsAnAlias):
    def forward(self, x: Tensor) -> Tensor:
        y = x.sigmoid()
        self.st = y
        a = self.st.t().reshape(3, 1, 2).transpose(0, 2)
        y.add_(1)
        return a.contiguous()


class StoresAndComputes(SetsAnAlias):
    def forward(self, x: Tensor) -> Tensor:
        y = x.sigmoid()
        self.st = y
        a = torch.exp(self.st) * 2
        y.add_(1)
        return torch.relu(a + 1) * self.st


@pytest.mark.parametrize("model", [SetsAnAlias, SetsInABranch, StoresAndMoves, StoresAndComputes])
def test_what_is_stored_and_read_back_shares_its_memory(model):
    check_calls(model, torch.randn(2, 3))


# Calls that stay calls.


class Forks(OneBuffer):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(4, 4)

    def scaled(self, x: Tensor) -> Tensor:
        self.buf.mul_(2)
        return x * self.buf

    def forward(self, x: Tensor) -> Tensor:
        y = torch.jit.wait(torch.jit.fork(self.scaled, x))
        return self.linear(y) * self.buf + self.other(x)


@torch.jit.interface
class Scales(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class ScalesItsBuffer(OneBuffer):
    def forward(self, x: Tensor) -> Tensor:
        self.buf.mul_(2)
        return x * self.buf


class CallsAnInterface(OneBuffer):
    inner: Scales

    def __init__(self) -> None:
        super().__init__()
        self.inner = ScalesItsBuffer()
        self.inner.buf = self.buf

    def forward(self, x: Tensor) -> Tensor:
        return self.inner.forward(self.linear(x)) * self.buf


class ForksItself(OneBuffer):
    def scaled(self, x: Tensor) -> Tensor:
        self.buf.mul_(2)
        return x * self.buf

    def forward(self, x: Tensor) -> Tensor:
        return torch.jit.wait(torch.jit.fork(self.scaled, x))


class CallsOfManyForks(nn.Module):
    """One graph, forked by several modules: whose buffers it overwrites, it does not say."""

    a: Scales
    b: Scales
    c: Scales
    d: Scales

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (ForksItself() for _ in range(4))
        self.e, self.f, self.g, self.h = (nn.Buffer(torch.rand(4)) for _ in range(4))
        for module, buffer in ((self.a, self.e), (self.b, self.f), (self.c, self.g), (self.d, self.h)):
            module.buf = buffer

    def forward(self, x: Tensor) -> Tensor:
        x = self.a.forward(x) * self.e + self.b.forward(x) * self.f
        return self.c.forward(x) * self.g + self.d.forward(x) * self.h


@pytest.mark.parametrize("model", [Forks, CallsAnInterface, CallsOfManyForks])
def test_calls_that_are_no_part_of_the_graph(model):
    check_calls(model, torch.randn(2, 4))


# Memory.


def test_what_is_only_read_is_packed_or_shared():
    """One written buffer keeps no weight from being packed."""
    optimized = check_calls(BufferOfASubmodule, torch.randn(2, 4))
    assert kinds(optimized)["ipex::linear_run"] == 1
    optimized = check_calls(ReturnsBuffer, torch.randn(2, 4), writes=True)
    assert kinds(optimized)["ipex::linear_run"] == 1
    assert [name for name, _ in optimized.named_buffers()] == ["buf"]


class Weights(nn.Module):
    """Packed, folded, left to aten, in a norm, as a number; and a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.linear, self.norm, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3, bias=False)
        self.wider = nn.Linear(3, 3).double()
        self.bilinear = nn.Bilinear(3, 3, 2)
        self.register_buffer("scale", torch.tensor(3.0))
        self.register_buffer("wide", torch.randn(1).expand(2))
        self.register_buffer("piece", torch.arange(100.0)[10:14:2])

    def forward(self, indices: Tensor) -> Tensor:
        y = self.last(self.norm(self.linear(self.table(indices)))) * self.scale
        y = self.wider(y.double()).float()
        return self.bilinear(y, y) * self.wide + self.piece


def constant_tensors(module: torch.jit.ScriptModule) -> list[Tensor]:
    graph = module.inlined_graph
    constants = [node.output().toIValue() for node in graph.findAllNodes("prim::Constant")]
    return [constant for constant in constants if isinstance(constant, Tensor)]


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("frozen", [False, True])
def test_writes_to_the_original_are_not_seen_but_in_tables(script, frozen):
    model, indices = two_of(Weights)[0], torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        module = torch.jit.script(model) if script else torch.jit.trace(model, indices)
        optimized = ipex.jit_optimize(torch.jit.freeze(module) if frozen else module)
        expected = model(indices)
        assert_same(optimized(indices), expected)
        for name, weight in model.state_dict().items():
            if name != "table.weight":
                weight.untyped_storage().fill_(0)
        assert_same(optimized(indices), expected)
    assert model.table.weight.data_ptr() in [constant.data_ptr() for constant in constant_tensors(optimized)]


def test_copies_of_weights_keep_their_strides_and_no_more_than_their_piece():
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.script(two_of(Weights)[0]))
    strided = {c.stride(): c for c in constant_tensors(optimized) if c.shape == (2,)}
    assert strided[(0,)].untyped_storage().nbytes() == 4
    assert strided[(2,)].untyped_storage().nbytes() == 12


def test_buffers_made_in_inference_mode():
    with torch.inference_mode():
        model = TwoBuffers().eval()
    optimized = ipex.jit_optimize(torch.jit.script(model))
    with torch.no_grad():
        assert_same(optimized(torch.arange(6.0)), torch.arange(3.0) * 2 + 18)


class ScalesItsParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.scale.mul_(2)
        return x * self.scale


def test_a_parameter_that_is_written_and_was_made_in_inference_mode():
    """The copy is no tensor of inference: of one, nobody may ask for gradients."""
    with torch.inference_mode():
        model = ScalesItsParameter().eval()
    optimized = ipex.jit_optimize(torch.jit.script(model))
    with torch.no_grad():
        assert torch.equal(optimized(torch.ones(3)), torch.full((3,), 2.0))
