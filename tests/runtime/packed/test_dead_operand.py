"""A sum is accumulated into its operand where nobody can read that any more, and nowhere else."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import profile

import ipex
from anchored import After, check, named, trace
from support import BF32_TOLERANCE, assert_same, contexts, fallback_reasons


def image(*shape: int) -> Tensor:
    """An image as the kernels take it."""
    x = torch.randn(shape or (2, 8, 7, 9))
    return x.to(memory_format=torch.channels_last)


def conv(**arguments: Any) -> nn.Module:
    return nn.Conv2d(8, 8, **{"kernel_size": 3, "padding": 1, **arguments})


class Sum(nn.Module):
    """relu(anchor(x) + r), and r where it is to be kept."""

    def __init__(self, anchor: nn.Module, producer: nn.Module, keeps: bool = False) -> None:
        super().__init__()
        self.anchor, self.producer, self.keeps = anchor, producer, keeps

    def forward(self, x: Tensor) -> Any:
        r = self.producer(x)
        y = torch.relu(self.anchor(x) + r)
        return (y, r) if self.keeps else y


def allocated(module: torch.jit.ScriptModule, x: Tensor) -> int:
    """How many bytes a warm call allocates."""
    for _ in range(3):
        module(x)
    with profile(profile_memory=True) as profiled:
        module(x)
    events = profiled.profiler.kineto_results.events()
    return sum(max(event.nbytes(), 0) for event in events if event.name() == "[memory]")


def saved_and_loaded(module: torch.jit.ScriptModule, folder: Path) -> torch.jit.ScriptModule:
    module.save(folder / "model.pt")
    return ipex.load(folder / "model.pt")


FIRES = {
    "3x3": (conv(), conv(), image()),
    "1x1": (conv(kernel_size=1, padding=0), conv(kernel_size=1, padding=0), image()),
    "1x1, many channels": (nn.Conv2d(32, 32, 1), nn.Conv2d(32, 32, 1), image(2, 32, 7, 9)),
    "depthwise": (conv(groups=8), conv(groups=8), image()),
    "strided": (conv(stride=2), conv(stride=2), image()),
    "transposed": (nn.ConvTranspose2d(8, 16, 3), nn.ConvTranspose2d(8, 16, 3), image()),
    "linear": (nn.Linear(24, 40), nn.Linear(24, 40), torch.randn(64, 24)),
    "linear, few rows": (nn.Linear(24, 40), nn.Linear(24, 40), torch.randn(5, 24)),
    "linear, long sums": (nn.Linear(2000, 40), nn.Linear(2000, 40), torch.randn(64, 2000)),
    "linear, mish": (nn.Linear(24, 40), nn.Sequential(nn.Linear(24, 40), nn.Mish()), torch.randn(64, 24)),
    "linear, 3-D": (nn.Linear(24, 40), nn.Linear(24, 40), torch.randn(2, 32, 24)),
    "one pixel": (conv(kernel_size=1, padding=0), nn.Sigmoid(), image(3, 8, 1, 1)),
    "an op of aten": (conv(), nn.Sigmoid(), image()),
}


@named("case", FIRES)
def test_the_result_takes_the_memory_of_a_dead_operand(
    tmp_path: Path, case: tuple[nn.Module, nn.Module, Tensor]
) -> None:
    anchor, producer, x = case
    dead, kept = (check(Sum(anchor, producer, keeps), (x,)) for keeps in (False, True))
    with torch.no_grad():
        y = dead(x)
        assert y.untyped_storage().nbytes() == y.nbytes
        assert allocated(dead, x) == y.nbytes
        assert allocated(kept, x) == 2 * y.nbytes
        assert allocated(saved_and_loaded(dead, tmp_path), x) == y.nbytes
    assert fallback_reasons(dead) == []
    assert max(context.cached_primitives() for context in contexts(dead)) <= 1


def held_by_a_caller(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    return F.relu(f(x) + r)


def read_later(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    a = f(r)
    y = F.relu(f(x) + a)
    return y, y * a


def returned(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    a = f(r)
    return F.relu(f(x) + a), a


def returned_in_a_dictionary(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    a = f(r)
    kept = {"a": a, "y": F.relu(f(x) + a)}
    return kept["a"], kept["y"]


def a_view_is_alive(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    a = f(r)
    part = a[:, :2]
    return F.relu(f(x) + a), part + 1


def it_is_a_view(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    a = f(r)
    return F.relu(f(x) + a.view_as(a)), a.detach() * 2, F.relu(f(x) + a.detach())


def a_piece_of_something(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    first, second = torch.cat([f(x), f(r)]).chunk(2)
    return F.relu(f(x) + first), F.relu(f(x) + second), f(x) + second


def expanded(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    return F.relu(f(x) + f(r)[:1].expand_as(r)), F.relu(f(x) + torch.sigmoid(r)[:, :1].expand_as(r))


def smaller(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    a = f(r)
    channels = a.mean(dim=-1, keepdim=True)
    return F.relu(f(x) + a.mean()), F.relu(f(x) + a.amax().view(1)), F.relu(f(x) + channels), F.relu(f(x) + a[0] * 2)


def then_something_for_aten(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    return F.elu(f(x) + f(r)), torch.add(f(x) + f(r), f(r), alpha=2), torch.maximum(f(x) + f(r), f(r))


def the_input_too(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    a = f(r)
    return F.relu(f(a) + a)


def the_input_is_a_view_of_it(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    a = f(r)
    return F.relu(f(a.flip(0).flip(0)) + a), F.relu(f(a.view_as(a)) + a)


def added_twice(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    a = f(r)
    return F.relu(f(x) + a + a)


def added_to_two(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    a = f(r)
    return F.relu(f(x) + a), F.relu(f(r) + a)


def two_operands(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    return F.relu(f(x) + f(r) + torch.sigmoid(r)), F.relu(f(x) + f(r)) * f(r) + f(f(r))


def first_in_the_sum(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    return F.relu(f(r) + f(x)), torch.sigmoid(r) + f(x)


def in_place(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    a = f(r)
    y = f(x)
    y += a
    return y.relu_(), F.relu(f(x).add_(f(r)))


def not_added(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    return f(x) - f(r), f(r) - f(x), f(x) * f(r), torch.add(f(x), f(r), alpha=2), F.relu(f(x)) + f(r)


def reused_at_once(f: nn.Module, x: Tensor, r: Tensor) -> Any:
    y = F.relu(f(x) + f(r))
    y = F.relu(f(x) + y)
    y = F.relu(f(y) + y)
    return F.relu(f(x) + y), f(x)


CASES = {
    function.__name__.replace("_", " "): function
    for function in (
        held_by_a_caller,
        read_later,
        returned,
        returned_in_a_dictionary,
        a_view_is_alive,
        it_is_a_view,
        a_piece_of_something,
        expanded,
        smaller,
        then_something_for_aten,
        the_input_too,
        the_input_is_a_view_of_it,
        added_twice,
        added_to_two,
        two_operands,
        first_in_the_sum,
        in_place,
        not_added,
        reused_at_once,
    )
}
ANCHORS = {
    "conv2d": (conv(), image()),
    "conv2d, contiguous": (conv(), image().contiguous()),
    "conv2d, no batch": (conv(), image()[0]),
    "1x1": (conv(kernel_size=1, padding=0), image()),
    "conv1d": (nn.Conv1d(8, 8, 3, padding=1), torch.randn(2, 8, 11)),
    "conv3d": (nn.Conv3d(8, 8, 3, padding=1), torch.randn(2, 8, 3, 4, 5)),
    "conv_transpose2d": (nn.ConvTranspose2d(8, 8, 3, padding=1), image()),
    "linear": (nn.Linear(24, 24), torch.randn(2, 24, 24)),
}


@named("anchor", ANCHORS)
@named("function", CASES)
def test_everybody_reads_what_eager_gives(function: Any, anchor: tuple[nn.Module, Tensor]) -> None:
    module, x = anchor
    r = torch.randn_like(x)
    model = After(module, function)
    optimized = check(model, (x, r))
    # There a view does not hold the tensor that it is a view of.
    with torch.inference_mode():
        for _ in range(3):
            our_x, our_r = x.clone(), r.clone()
            assert_same(optimized(our_x, our_r), model(x, r))
            assert_same([our_x, our_r], [x, r], tolerance=0)


@named("anchor", ANCHORS)
def test_nan_and_infinity_are_added(anchor: tuple[nn.Module, Tensor]) -> None:
    module, x = anchor
    r = torch.randn_like(x)
    row = r
    while row.dim() > 1:
        row = row[0]
    row[:4] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0])
    check(After(module, lambda f, x, r: F.relu(f(x) + (r * 2).abs())), (x, r))


@pytest.mark.parametrize("anchor", ["1x1", "linear"])
def test_one_per_channel_is_not_the_result(anchor: str) -> None:
    """It may have the memory of a result, with the sizes of another."""
    module, x = ANCHORS[anchor]
    small = image(3, 8, 1, 1) if anchor == "1x1" else torch.randn(64, 24)

    def function(f: nn.Module, x: Tensor) -> Any:
        channels = torch.sigmoid(x[:1] if x.dim() == 4 else x[0])
        return F.relu(f(x) + channels * 2), F.relu(f(x[:1]) + torch.sigmoid(x[0]))

    check(After(module, function), (small,), (small[:1],), (x.flatten(0, -2) if x.dim() == 3 else x[:1, :, :1, :1],))


@pytest.mark.parametrize("part", [slice(None, 2), slice(2, None)])
def test_memory_that_is_only_a_part_is_not_taken(part: slice) -> None:
    model = After(conv(), lambda f, x, r: F.relu(f(x) + torch.sigmoid(torch.cat([x, r]))[part]))
    x, r = image(), image()
    optimized = check(model, (x, r))
    with torch.inference_mode():
        for _ in range(3):
            y = optimized(x, r)
            assert y.untyped_storage().nbytes() == y.nbytes
            assert_same(y, model(x, r))


class Direct(nn.Module):
    """A packed convolution with lists of the test's own making."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        self.context = context
        self.constant = image()

    def once(self, x: Tensor, operands: list[Tensor]) -> Tensor:
        return torch.ops.ipex.convolution_run(x, self.context, operands, False)


class OwnList(Direct):
    def forward(self, x: Tensor, r: Tensor) -> list[Tensor]:
        return [self.once(x, [torch.sigmoid(r)])]


class SharedList(Direct):
    def forward(self, x: Tensor, r: Tensor) -> list[Tensor]:
        operands = [torch.sigmoid(r)]
        return [self.once(x, operands), self.once(r, operands)]


class KeptList(Direct):
    def forward(self, x: Tensor, r: Tensor) -> list[Tensor]:
        operands = [torch.sigmoid(r)]
        y = self.once(x, operands)
        operands.append(y)
        return operands


class ListInAList(Direct):
    def forward(self, x: Tensor, r: Tensor) -> list[Tensor]:
        operands = [[torch.sigmoid(r)]]
        return [self.once(x, operands[0]), self.once(r, operands[0]), operands[0][0]]


class Constant(Direct):
    def forward(self, x: Tensor, r: Tensor) -> list[Tensor]:
        return [self.once(x, [self.constant]), self.once(r, [self.constant])]


class Loop(Direct):
    def forward(self, x: Tensor, r: Tensor) -> list[Tensor]:
        y = r
        for _ in range(4):
            y = self.once(x, [y])
        return [y]


class LoopOnOne(Direct):
    def forward(self, x: Tensor, r: Tensor) -> list[Tensor]:
        a = torch.sigmoid(r)
        y = x
        for _ in range(4):
            y = self.once(y, [a])
        return [y]


class Branch(Direct):
    def forward(self, x: Tensor, r: Tensor) -> list[Tensor]:
        a = torch.sigmoid(r)
        y = x
        if bool(x.sum() == x.sum()):
            y = self.once(x, [a])
        return [y, a * 2]


class Forked(Direct):
    def forward(self, x: Tensor, r: Tensor) -> list[Tensor]:
        a = torch.sigmoid(r)
        later = torch.jit.fork(torch.neg, a)
        y = self.once(x, [a])
        return [y, torch.jit.wait(later)]


def packed_sum() -> tuple[nn.Module, Any]:
    """relu(conv(x) + r), and the context that computes it."""
    model = After(conv(), held_by_a_caller).eval()
    optimized = ipex.jit_optimize(trace(model, image(), image()))
    (context,) = contexts(optimized)
    return model, context


@pytest.mark.parametrize(
    "program", [OwnList, SharedList, KeptList, ListInAList, Constant, Loop, LoopOnOne, Branch, Forked]
)
def test_only_a_list_of_its_own_gives_its_memory(program: type[Direct]) -> None:
    eager, context = packed_sum()
    plain, packed = program(context), torch.jit.script(program(context))
    with torch.no_grad():
        plain.once = lambda x, operands: eager(x, operands[0])  # type: ignore[method-assign]
        packed.constant.copy_(plain.constant)
        x, r = image(), image()
        expected = plain(x, r)
        for _ in range(4):
            our_x, our_r = copy.deepcopy((x, r))
            assert_same(packed(our_x, our_r), expected)
            assert_same([our_x, our_r, packed.constant], [x, r, plain.constant], tolerance=0)


def test_a_call_from_python_overwrites_nothing() -> None:
    eager, context = packed_sum()
    x, r = image(), image()
    with torch.no_grad():
        expected = eager(x, r)
        kept = r.clone()
        for operands in ([r], (r,)):
            result = torch.ops.ipex.convolution_run(x, context, operands, False)
            assert_same(result, expected)
            assert_same(r, kept, tolerance=0)
        assert_same(torch.ops.ipex.convolution_run(x, context, [r.clone()], False), expected)


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    """Its pages are read by others when the tensor is gone."""

    class FromFile(Direct):
        def __init__(self, context: Any, path: str) -> None:
            super().__init__(context)
            self.path = path

        def forward(self, x: Tensor) -> Tensor:
            pixels = torch.from_file(self.path, True, 2 * 7 * 9 * 8, dtype=torch.float)
            return self.once(x, [pixels.view(2, 7, 9, 8).permute(0, 3, 1, 2)])

    path = tmp_path / "pixels"
    torch.zeros(2 * 7 * 9 * 8).numpy().tofile(path)
    eager, context = packed_sum()
    program, x = torch.jit.script(FromFile(context, str(path))), image()
    with torch.inference_mode():
        for _ in range(4):
            assert_same(program(x), eager(x, torch.zeros_like(x)))
    assert not any(path.read_bytes())


def test_gradients_are_eagers() -> None:
    eager = After(conv(), lambda f, x, r: F.relu(f(x) + torch.sigmoid(r))).eval()
    x, r = image(), image()
    optimized = ipex.jit_optimize(trace(eager, x, r))
    for with_gradient in ((x,), (r,), (x, r)):
        gradients = []
        for model in (eager, optimized, optimized, optimized):
            inputs = [t.clone().requires_grad_(any(t is w for w in with_gradient)) for t in (x, r)]
            model(*inputs).square().sum().backward()
            gradients.append([t.grad for t in inputs if t.requires_grad])
        for ours in gradients[1:]:
            assert_same(ours, gradients[0])


@pytest.mark.parametrize("inside", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_the_result_is_a_tensor_as_any_other(inside: Any) -> None:
    eager = After(conv(), lambda f, x, r: F.relu(f(x) + torch.sigmoid(r))).eval().requires_grad_(False)
    x, r = image(), image()
    optimized = ipex.jit_optimize(trace(eager, x, r))
    with inside():
        for _ in range(3):
            expected, result = eager(x, r), optimized(x, r)
            for ask in ("is_inference", "is_leaf", "requires_grad", "grad_fn", "_is_view"):
                theirs, ours = getattr(expected, ask), getattr(result, ask)
                assert (ours() if callable(ours) else ours) == (theirs() if callable(theirs) else theirs), ask
            assert result.resize_(4).shape == (4,)


def test_many_threads_on_one_model() -> None:
    def stack(f: nn.Module, x: Tensor) -> Tensor:
        for _ in range(4):
            x = F.relu(f(f(x)) + f(x))
        return x

    model = After(conv(), stack).eval()
    inputs = [image() for _ in range(8)]
    optimized = ipex.jit_optimize(trace(model, inputs[0]))
    with torch.no_grad():
        expected = [model(x) for x in inputs]

        def serve(i: int) -> Tensor:
            with torch.no_grad():
                return optimized(inputs[i % 8])

        with ThreadPoolExecutor(4) as pool:
            for i, result in enumerate(pool.map(serve, range(64))):
                assert_same(result, expected[i % 8])


def test_math_mode_bf32() -> None:
    eager = After(conv(), lambda f, x, r: F.relu(f(x) + f(r))).eval()
    x, r = image(), image()
    optimized = ipex.jit_optimize(trace(eager, x, r), fp32_math_mode=ipex.FP32MathMode.BF32)
    with torch.no_grad():
        for _ in range(3):
            assert_same(optimized(x, r), eager(x, r), BF32_TOLERANCE)
