"""Quantised random networks do the arithmetic that their scales ask for, and the fuzzer sees when they don't."""

from __future__ import annotations

import pytest
import torch

from fuzz import quantized_check
from fuzz.quantized_check import Verdict
from fuzz.run_quantized import data_of, verdict_of

CASES = 40


def verdicts(seed: int, **options) -> list[Verdict]:
    return [verdict_of(data_of(seed, case), **options) for case in range(CASES)]


@pytest.mark.parametrize("options", [{}, {"ranks": (1, 2, 3)}, {"linears": True}], ids=str)
def test_networks_do_as_their_scales_say(options):
    found = verdicts(7, **options)
    assert [v.detail for v in found if v.kind == "failed"] == []
    assert sum(v.kind in ("exact", "close") for v in found) > CASES // 2
    assert options.get("linears") or any(v.kind == "exact" for v in found)


def shifted(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Every zero point by one."""
    for index in range(20):
        if not hasattr(module, f"packed_{index}"):
            break
        (version, tensors, integers, post_ops), name = getattr(module, f"packed_{index}").__getstate__()
        affines = tensors["affines"].clone()
        affines[1] = affines[1] + 1 if affines[1] < 255 else 0
        context = torch.ScriptObject.__new__(torch.ScriptObject)
        context.__setstate__(((version, {**tensors, "affines": affines}, integers, post_ops), name))
        setattr(module, f"packed_{index}", context)
    return module


def test_a_wrong_zero_point_is_found(monkeypatch):
    layers_of = quantized_check.layers_of

    def then_shift(module):
        found = layers_of(module)
        shifted(module)
        return found

    monkeypatch.setattr(quantized_check, "layers_of", then_shift)
    found = verdicts(7)
    assert sum(v.kind == "failed" for v in found) > CASES // 2
