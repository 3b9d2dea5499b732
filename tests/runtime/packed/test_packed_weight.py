"""A weight is packed once for all contexts that are made from the same tensor, and saved once."""

from __future__ import annotations

import copy
import gc
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_same

MIB = 1 << 20


class Twice(nn.Module):
    """A 16 MiB linear, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2048, 2048)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(torch.tanh(self.linear(x)) * 2 + x))


class TwoMethods(nn.Module):
    """A 16 MiB linear, called by two methods."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2048, 2048)

    @torch.jit.export
    def prefill(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))


def optimized(model: nn.Module) -> torch.jit.ScriptModule:
    scripted = torch.jit.script(model.eval())
    frozen = torch.jit.freeze(scripted, preserved_attrs=["prefill"]) if hasattr(model, "prefill") else scripted
    return ipex.jit_optimize(frozen)


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def packed(module: torch.jit.ScriptModule) -> list[torch.ScriptObject]:
    found = []
    while hasattr(module, f"packed_{len(found)}"):
        found.append(getattr(module, f"packed_{len(found)}"))
    return found


def linear_context(weight: Tensor, bias: Tensor | None = None, post_ops: tuple[str, ...] = ()) -> torch.ScriptObject:
    return torch.ops.ipex.linear_prepack(weight, bias, list(post_ops), None, None, None)


def run(context: torch.ScriptObject, x: Tensor) -> Tensor:
    return torch.ops.ipex.linear_run(x, context, [], True)


# What it takes to load a file, drop what the loader held, and pack: of a fresh process, in MiB.
MEMORY = """
import gc, os, sys, torch, ipex
torch.set_grad_enabled(False)
torch.set_num_threads(1)
def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
ipex.load(sys.argv[2])(torch.ones(1, 2048))
before = resident()
model = ipex.load(sys.argv[1])
x = torch.ones(40, 2048)
model(x)
if hasattr(model, "prefill"):
    model.prefill(x)
print(resident() - before)
"""


@pytest.mark.parametrize("kind", [Twice, TwoMethods])
def test_a_linear_in_two_places_is_saved_once_and_there_once(tmp_path, kind):
    model, x = kind(), torch.randn(3, 2048)
    ours = optimized(model)
    assert len(packed(ours)) == 2
    ours.save(tmp_path / "model.pt")
    assert os.path.getsize(tmp_path / "model.pt") < 1.2 * 16 * MIB
    ipex.jit_optimize(torch.jit.trace(nn.Linear(2048, 2).eval(), x)).save(tmp_path / "tiny.pt")
    command = [sys.executable, "-W", "ignore", "-c", MEMORY, tmp_path / "model.pt", tmp_path / "tiny.pt"]
    grown = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert grown < 1.5 * 16
    loaded = ipex.load(tmp_path / "model.pt")
    with torch.no_grad():
        assert_same(ours(x), model(x))
        assert torch.equal(loaded(x), ours(x))
        if kind is TwoMethods:
            assert_same(ours.prefill(x), model.prefill(x))
            assert torch.equal(loaded.prefill(x), ours.prefill(x))


def test_packing_takes_memory_once():
    weight = torch.randn(4096, 4096)  # 64 MiB
    first = linear_context(weight)
    before = resident_bytes()
    others = [linear_context(weight, post_ops=("relu",)), linear_context(weight), linear_context(weight)]
    assert resident_bytes() - before < 32 * MIB
    x = torch.randn(2, 4096)
    for context in (first, *others[1:]):
        assert_same(run(context, x), x @ weight.T)
    assert_same(run(others[0], x), torch.relu(x @ weight.T))


def write_in_place(weight: Tensor) -> None:
    weight[5, 7] += 1


def write_unseen(weight: Tensor) -> None:
    """No version counter counts this."""
    weight.data[5, 7] += 1


def write_through_numpy(weight: Tensor) -> None:
    weight.numpy()[5, 7] += 1


@pytest.mark.parametrize("write", [write_in_place, write_unseen, write_through_numpy])
def test_a_weight_that_was_written_to_is_another_weight(write):
    weight, x = torch.randn(40, 30), torch.randn(2, 30)
    first = linear_context(weight)
    before = x @ weight.T
    write(weight)
    second = linear_context(weight)
    assert_same(run(first, x), before)
    assert_same(run(second, x), x @ weight.T)
    assert not torch.equal(run(first, x), run(second, x))


def test_a_zero_that_changes_its_sign_is_a_change():
    weight, x = torch.zeros(3, 3), torch.ones(1, 3)
    first = linear_context(weight)
    weight.neg_()
    second = linear_context(weight)
    for context, zero in ((first, 0.0), (second, -0.0)):
        saved = context.__getstate__()[0][1]["weight"]
        assert torch.equal(torch.signbit(saved), torch.signbit(torch.full((3, 3), zero)))
    assert torch.equal(run(first, x), run(second, x))


def test_nan_is_the_same_nan():
    weight = torch.full((40, 30), float("nan"))
    first, second = linear_context(weight), linear_context(weight)
    assert run(first, torch.ones(1, 30)).isnan().all()
    assert run(second, torch.ones(1, 30)).isnan().all()


def test_memory_that_another_tensor_gets_later_is_another_weight():
    x = torch.randn(2, 300)
    contexts, products = [], []
    for _ in range(20):
        weight = torch.randn(300, 300)
        products.append(x @ weight.T)
        contexts.append(linear_context(weight))
        del weight
    for context, product in zip(contexts, products):
        assert_same(run(context, x), product)


def test_parts_of_one_tensor_are_different_weights():
    whole, x = torch.randn(6, 8, 16), torch.randn(2, 16)
    contexts = [linear_context(part) for part in whole]
    assert_same(torch.stack([run(c, x) for c in contexts]), x @ whole.mT)
    square = torch.randn(16, 16)
    straight, transposed = linear_context(square), linear_context(square.T)
    assert_same(run(straight, x), x @ square.T)
    assert_same(run(transposed, x), x @ square)


def test_another_geometry_of_the_same_weight():
    weight, x = torch.randn(32, 32, 3, 3), torch.randn(1, 32, 20, 20)
    with torch.no_grad():
        for stride, dilation, groups in ((1, 1, 1), (2, 1, 1), (1, 2, 1)):
            conv = nn.Conv2d(32, 32, 3, stride=stride, dilation=dilation, groups=groups, bias=False).eval()
            conv.weight = nn.Parameter(weight)
            assert_same(ipex.jit_optimize(torch.jit.trace(conv, x))(x), conv(x))


def test_a_context_outlives_the_one_that_it_shares_with():
    weight, x = torch.randn(40, 30), torch.randn(2, 30)
    expected = x @ weight.T
    first = linear_context(weight)
    second = linear_context(weight)
    del first, weight
    gc.collect()
    assert_same(run(second, x), expected)
    assert_same(run(copy.deepcopy(second), x), expected)


def test_a_state_that_was_written_to_is_not_saved():
    weight = torch.randn(40, 30)
    context = linear_context(weight)
    state = context.__getstate__()[0][1]["weight"]
    state.zero_()
    assert torch.equal(context.__getstate__()[0][1]["weight"], weight)


TIGHT = Path(__file__).with_name("pack_in_tight_memory.py")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_weight_of_which_packing_lost_a_part_is_never_taken_for_whole(tmp_path):
    """Under limits from too tight to wide enough: what comes after is right, or an error that says so."""
    model = nn.Linear(2048, 16384)
    ipex.jit_optimize(torch.jit.trace(model.eval(), torch.ones(1, 2048))).save(tmp_path / "model.pt")
    with torch.no_grad():
        torch.save(model(torch.ones(1, 2048)), tmp_path / "expected.pt")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", TIGHT, tmp_path / "model.pt", tmp_path / "expected.pt"],
        capture_output=True,
        text=True,
        check=False,
    )
    outcomes = done.stdout.split("\n")[:-1]
    assert done.returncode == 0, done.stdout + done.stderr
    expected = {"another error, then right", "lost, then lost", "right, then right"}
    assert set(outcomes) == expected, "no limit of these let packing fail in the middle"
