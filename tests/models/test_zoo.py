"""Whole models: eager's results for every input, and no anchor is left to aten without a reason."""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import ipex
from leftovers import ANCHORS, left_to_aten
from support import assert_same, fallback_reasons, kinds
from zoo import MODELS

# What `transformers` says to itself.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed in v6:FutureWarning")

# Attention as one op is fused in aten already.
EXPLAINED = ANCHORS.keys() - {"attention"}

# Errors of many layers add up, eager's as much as ours: measured against float64, ours may be this many times as large
# as eager's. Below the floor, which is a few roundings of the largest element, the ratio is chance.
TIMES_EAGERS_ERROR = 4
FLOOR = 1e-6


class Case(NamedTuple):
    """A model, its inputs, and what jit_optimize made of its trace."""

    model: nn.Module
    inputs: list[tuple[Tensor, ...]]
    optimized: torch.jit.ScriptModule


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    if MODELS[request.param].needs:
        pytest.importorskip(MODELS[request.param].needs)
    model, inputs = MODELS[request.param].make()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        traced = torch.jit.trace(model, copy.deepcopy(inputs[0]), check_trace=False)
    return Case(model, inputs, ipex.jit_optimize(traced))


def operations(module: torch.jit.ScriptModule) -> dict[str, int]:
    """How many nodes of each kind, without constants and lists: a file repeats these where they are used."""
    return {kind: count for kind, count in kinds(module).items() if not kind.startswith("prim::")}


def tensors(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def error(actual: Any, exact: Any) -> float:
    """The largest error, relative to the largest element."""
    return max(((a - e).abs().max() / e.abs().max()).item() for a, e in zip(tensors(actual), tensors(exact)))


def test_matches_eager(case):
    exact_model = copy.deepcopy(case.model).double()
    for inputs in case.inputs:
        with torch.no_grad():
            expected = case.model(*inputs)
            exact = exact_model(*(x.double() if x.is_floating_point() else x for x in inputs))
            bound = max(TIMES_EAGERS_ERROR * error(expected, exact), FLOOR)
            for _ in range(3):  # TorchScript recompiles after the first calls
                ours = copy.deepcopy(inputs)
                actual = case.optimized(*ours)
                assert_same(actual, expected)
                assert error(actual, exact) <= bound
                assert all(map(torch.equal, ours, inputs))
    print(*fallback_reasons(case.optimized), sep="\n")


def test_survives_save_and_load(case, tmp_path):
    case.optimized.save(tmp_path / "model.pt")
    loaded = ipex.load(tmp_path / "model.pt")
    assert operations(loaded) == operations(case.optimized)
    with torch.no_grad():
        for inputs in case.inputs:
            assert_same(loaded(*inputs), case.optimized(*inputs), tolerance=0)


def test_every_anchor_left_to_aten_has_a_reason(case):
    anchors = [left for left in left_to_aten(case.optimized) if left.family in EXPLAINED]
    print(*anchors, sep="\n")
    assert [str(left) for left in anchors if not left.reason] == []


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.scripts])
def test_scripted_model_matches_eager(name):
    model, inputs = MODELS[name].make()
    optimized = ipex.jit_optimize(torch.jit.script(model))
    anchors = [left for left in left_to_aten(optimized) if left.family in EXPLAINED]
    assert [str(left) for left in anchors if not left.reason] == []
    with torch.no_grad():
        for arguments in inputs:
            expected = model(*arguments)
            for _ in range(2):
                assert_same(optimized(*arguments), expected)
