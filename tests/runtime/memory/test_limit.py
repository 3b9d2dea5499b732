"""At the limit the cache is emptied, the allocation tried once more, and then refused with who holds what."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import ipex
from support import assert_same

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _no_limit() -> Iterator[None]:
    gc.collect()
    ipex.empty_cache()
    ipex.reset_accumulated_memory_stats()
    yield
    ipex.set_memory_limit(None)


@pytest.fixture
def model() -> nn.Module:
    return nn.Linear(256, 1024).eval()  # a result of 4 KiB per row


def optimized(model: nn.Module) -> torch.jit.ScriptModule:
    return ipex.jit_optimize(torch.jit.trace(model, torch.randn(2, 256)))


def counts() -> tuple[int, int]:
    stats = ipex.memory_stats()
    return stats["num_alloc_retries"], stats["num_ooms"]


def test_an_error_that_says_who_holds_what(model):
    ours, x = optimized(model), torch.randn(1024, 256)
    ipex.set_memory_limit(ipex.memory_reserved() + 6 * MIB)
    with torch.no_grad():
        held = ours(x)
        with pytest.raises(RuntimeError) as caught:
            ours(x)
        assert counts() == (1, 1)
        message = str(caught.value)
        assert "ipex: expected 4.0 MiB more for results within a limit of" in message
        held_by_weights = sum(s["allocated_size"] for s in ipex.memory_snapshot() if s["holder"] == "packed weights")
        assert f"Packed weights hold {held_by_weights / MIB:.1f} MiB, results 4.0 MiB" in message
        assert "raise the limit: ipex.set_memory_limit" in message
        assert_same(held, model(x))
        del held
        assert_same(ours(x), model(x))  # there is room again
        assert counts() == (1, 1)


def test_what_is_kept_makes_way(model):
    ours, x = optimized(model), torch.randn(1024, 256)
    with torch.no_grad():
        ours(x)  # 4 MiB are kept
        ipex.set_memory_limit(ipex.memory_reserved() + 2 * MIB)
        y = ours(torch.cat([x, x[:256]]))  # 5 MiB
        assert_same(y[:1024], model(x))
    assert counts() == (1, 0)
    assert ipex.memory_reserved() <= ipex.get_memory_limit()


def test_a_region_is_not_larger_than_the_limit_leaves_it(model):
    ours, x = optimized(model), torch.randn(1024, 256)
    ipex.set_memory_limit(ipex.memory_reserved() + 13 * MIB)
    with torch.no_grad():
        results = [ours(x) for _ in range(3)]  # regions of 4, then 8 MiB: for three of them
    assert len({y.data_ptr() for y in results}) == 3
    assert ipex.memory_reserved() <= ipex.get_memory_limit()


def test_small_results_have_a_limit_too(model):
    ours = optimized(model)
    ipex.empty_cache()
    ipex.set_memory_limit(ipex.memory_reserved())
    with torch.no_grad(), pytest.raises(RuntimeError, match="expected 4.0 KiB more for results"):
        ours(torch.randn(1, 256))
    assert counts() == (1, 1)


def test_a_model_does_not_pack_beyond_it(model):
    traced, before = torch.jit.trace(model, torch.randn(2, 256)), ipex.memory_allocated()
    ipex.set_memory_limit(ipex.memory_reserved() + MIB // 2)
    with pytest.raises(RuntimeError, match="more for packed weights"):
        ipex.jit_optimize(traced)
    gc.collect()
    assert ipex.memory_allocated() == before
    ipex.set_memory_limit(None)
    with torch.no_grad():
        assert_same(optimized(model)(torch.ones(1, 256)), model(torch.ones(1, 256)))


def test_a_loaded_model_packs_once_there_is_room(model, tmp_path):
    optimized(model).save(tmp_path / "model.pt")
    gc.collect()
    loaded, x = ipex.load(tmp_path / "model.pt"), torch.randn(3, 256)
    ipex.empty_cache()
    ipex.set_memory_limit(ipex.memory_reserved() + MIB // 2)
    with torch.no_grad():
        with pytest.raises(RuntimeError):
            loaded(x)
        ipex.set_memory_limit(None)
        assert_same(loaded(x), model(x))


def test_it_can_be_read_and_lifted():
    assert ipex.get_memory_limit() is None
    ipex.set_memory_limit(123)
    assert ipex.get_memory_limit() == 123
    ipex.set_memory_limit(None)
    assert ipex.get_memory_limit() is None


@pytest.mark.parametrize("limit", [1.5, True, "1G"])
def test_a_limit_is_a_number_of_bytes(limit):
    with pytest.raises(TypeError, match="expected a number of bytes or None"):
        ipex.set_memory_limit(limit)


def test_a_limit_is_not_negative():
    with pytest.raises(RuntimeError, match="expected a number of bytes, or none, got -1"):
        ipex.set_memory_limit(-1)
