"""Whatever is packed comes out of the file: the same bits as from a portable one, and nothing is packed."""

from __future__ import annotations

import copy
import gc
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

import ipex
from aot_file import AotFile
from kinds_of_model import KINDS, model_and_input


def weight_bytes() -> int:
    """Bytes of weights that this process has packed and holds."""
    gc.collect()
    return sum(s["allocated_size"] for s in ipex.memory_snapshot() if s["holder"] == "packed weights")


def contexts_of(model: torch.jit.ScriptModule) -> list[str]:
    texts = []
    while hasattr(model, f"packed_{len(texts)}"):
        texts.append(getattr(model, f"packed_{len(texts)}").describe())
    return texts


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_same_bits_and_nothing_is_packed(name, tmp_path):
    model, x = model_and_input(name)
    ipex.aot_save(model, tmp_path / "model.ipex", example_inputs=x)
    model.save(tmp_path / "model.pt")
    portable = ipex.load(tmp_path / "model.pt")
    expected = [portable(x), portable(x)]
    kinds = [form.kind for form in AotFile(tmp_path / "model.ipex").forms()]
    for wanted in KINDS[name].forms:
        assert any(kind.startswith(wanted) for kind in kinds), kinds

    before = weight_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = ipex.aot_load(tmp_path / "model.ipex")
    actual = [loaded(x), loaded(x)]
    if KINDS[name].forms:
        # The one small thing that is made at load: the scales of int8 weights, and what tiles add to their sums.
        assert weight_bytes() - before <= (32768 if name.startswith(("dynamic int8", "static int8")) else 0)
    for a, e in zip(actual, expected):
        assert torch.equal(a, e)
        assert a.stride() == e.stride()
    texts = contexts_of(loaded)
    assert texts or name == "embedding bag"
    for text in texts:
        assert "packed=again" not in text
        assert "packed=in the file" in text or "matmul" in text or not KINDS[name].forms, text

    # What it saves is whole: as a portable file, as a copy, as a file like the first.
    loaded.save(tmp_path / "again.pt")
    copied = copy.deepcopy(loaded)
    ipex.aot_save(loaded, tmp_path / "again.ipex", example_inputs=x)
    del loaded
    for again in (ipex.load(tmp_path / "again.pt"), copied, ipex.aot_load(tmp_path / "again.ipex")):
        assert torch.equal(again(x), expected[0])
    first, second = (ipex.aot_describe(tmp_path / name) for name in ("model.ipex", "again.ipex"))
    assert first == second


@torch.no_grad()
def test_without_inputs_the_first_call_makes_copies(tmp_path):
    model, x = model_and_input("convolution by winograd")
    expected = model(x)
    ipex.aot_save(model, tmp_path / "model.ipex")
    assert [f.kind.split(",")[0].split(" ")[0] for f in AotFile(tmp_path / "model.ipex").forms()] == ["blocked"]
    loaded = ipex.aot_load(tmp_path / "model.ipex")
    before = weight_bytes()
    assert torch.equal(loaded(x), expected)
    assert weight_bytes() - before > 36 * 64 * 64 * 4
    assert "packed=in the file" in contexts_of(loaded)[0]


@torch.no_grad()
def test_a_weight_that_two_layers_share_is_there_once(tmp_path):
    model, x = model_and_input("linear called twice")
    ipex.aot_save(model, tmp_path / "model.ipex", example_inputs=x)
    assert len([f for f in AotFile(tmp_path / "model.ipex").forms() if f.kind.startswith("blocked")]) == 1


@torch.no_grad()
def test_many_threads_may_make_the_first_call(tmp_path):
    model, x = model_and_input("attention")
    expected = model(x)
    ipex.aot_save(model, tmp_path / "model.ipex")
    loaded = ipex.aot_load(tmp_path / "model.ipex", check_at_load=False)

    def call(_: int) -> bool:
        with torch.no_grad():
            return torch.equal(loaded(x), expected)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(32)))


class Counter(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.linear(x) * self.calls


@torch.no_grad()
def test_a_buffer_may_be_written_to_and_the_file_stays_as_it_is(tmp_path):
    scripted = torch.jit.freeze(torch.jit.script(Counter().eval()), preserved_attrs=["calls"])
    ipex.aot_save(ipex.jit_optimize(scripted), tmp_path / "model.ipex")
    content, x = (tmp_path / "model.ipex").read_bytes(), torch.randn(2, 8)
    loaded, other = ipex.aot_load(tmp_path / "model.ipex"), ipex.aot_load(tmp_path / "model.ipex")
    first, second = loaded(x), loaded(x)
    assert torch.allclose(second, 2 * first)
    assert torch.equal(other(x), first)
    assert (tmp_path / "model.ipex").read_bytes() == content


@torch.no_grad()
def test_the_file_may_be_replaced_or_removed_while_it_is_used(tmp_path):
    path = tmp_path / "model.ipex"
    model, x = model_and_input("linear")
    ipex.aot_save(model, path)
    loaded = ipex.aot_load(path, check_at_load=False)
    ipex.aot_save(model_and_input("lstm")[0], path)
    Path(path).unlink()
    assert torch.equal(loaded(x), model(x))


@torch.no_grad()
def test_a_context_outlives_the_model(tmp_path):
    model, _ = model_and_input("tied embedding")
    rows = torch.arange(300)
    expected = torch.ops.ipex.embedding(rows, model.packed_0)
    ipex.aot_save(model, tmp_path / "model.ipex")
    loaded = ipex.aot_load(tmp_path / "model.ipex")
    context = loaded.packed_0
    del loaded
    gc.collect()
    assert torch.equal(torch.ops.ipex.embedding(rows, context), expected)


@torch.no_grad()
def test_mapped_bytes_are_told_apart(tmp_path):
    model, x = model_and_input("linear")
    ipex.aot_save(model, tmp_path / "model.ipex")
    before, size = ipex.mapped_bytes(), (tmp_path / "model.ipex").stat().st_size
    loaded = ipex.aot_load(tmp_path / "model.ipex")
    loaded(x)
    assert ipex.mapped_bytes() - before == size
    assert "of files with packed weights are mapped" in ipex.memory_summary()
    del loaded
    gc.collect()
    assert ipex.mapped_bytes() == before
