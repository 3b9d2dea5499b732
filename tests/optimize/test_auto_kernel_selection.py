"""auto_kernel_selection: the faster kernel for each layer, remembered and carried to other processes."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import ipex
from ipex._optimize import auto_kernel_selection
from ipex._optimize.packed.layer import OneInput
from optimize.models import Mlp, trained
from support import assert_same

X = torch.randn(3, 16)


@pytest.fixture(autouse=True)
def _no_choices(monkeypatch):
    monkeypatch.setattr(auto_kernel_selection, "_choices", {})


def select(model: nn.Module) -> tuple[nn.Module, list[ipex.Decision]]:
    optimized = ipex.optimize(model, auto_kernel_selection=True, sample_input=X)
    return optimized, [d for d in ipex.explain(optimized) if d.pass_name == "auto_kernel_selection"]


def packed(optimized: nn.Module) -> list[str]:
    return [name for name, m in optimized.named_modules() if isinstance(m, OneInput)]


def times(monkeypatch, packed_time: float, aten_time: float) -> list[int]:
    calls: list[int] = []

    def told(*_):
        calls.append(1)
        return packed_time, aten_time

    monkeypatch.setattr(auto_kernel_selection, "_best_times", told)
    return calls


def test_both_are_really_timed():
    optimized, decisions = select(trained(Mlp()))
    assert len(decisions) == 2
    assert all("packed takes" in d.reason for d in decisions)
    assert len(ipex.kernel_choices()) == 2
    with torch.no_grad():
        assert_same(optimized(X), optimized(X))


@pytest.mark.parametrize(("aten_time", "names"), [(2.0, ["first", "second"]), (0.5, []), (0.99, ["first", "second"])])
def test_the_faster_one_is_kept(monkeypatch, aten_time, names):
    times(monkeypatch, 1.0, aten_time)
    model = trained(Mlp())
    optimized, _ = select(model)
    assert packed(optimized) == names
    assert type(optimized.first).__mro__[-2] is nn.Module
    with torch.no_grad():
        assert_same(optimized(X), model(X), 2e-5)


def test_choices_are_remembered_and_carried(monkeypatch):
    calls = times(monkeypatch, 1.0, 0.5)
    select(trained(Mlp()))
    assert len(calls) == 2
    optimized, decisions = select(trained(Mlp()))
    assert len(calls) == 2
    assert packed(optimized) == []
    assert all("as chosen before" in d.reason for d in decisions)
    carried = json.loads(json.dumps(ipex.kernel_choices()))
    monkeypatch.setattr(auto_kernel_selection, "_choices", {})
    ipex.use_kernel_choices(carried)
    assert packed(select(trained(Mlp()))[0]) == []
    assert len(calls) == 2


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="expected 'packed' or 'aten' for 'a', got 'b'"):
        ipex.use_kernel_choices({"a": "b"})
