"""Quantised random networks do the arithmetic that their scales ask for, and the fuzzer sees when they don't."""

from __future__ import annotations

import pytest
import torch

from fuzz import quantized_check
from fuzz.quantized_check import Verdict
from fuzz.run_quantized import data_of, verdict_of
from support import HAS_INT8

CASES = 40
WITH_ATTENTION = (0, 4, 15, 16, 17, 22, 25, 26, 27)  # of seed 8, that attend: it computes in 8 bits


def verdicts(seed: int, **options) -> list[Verdict]:
    return [verdict_of(data_of(seed, case), **options) for case in range(CASES)]


@pytest.mark.parametrize("options", [{}, {"ranks": (1, 2, 3)}, {"linears": True}, {"attends": True}], ids=str)
def test_networks_do_as_their_scales_say(options):
    found = verdicts(7, **options)
    assert [v.detail for v in found if v.kind == "failed"] == []
    assert sum(v.kind in ("exact", "close") for v in found) > CASES // 2
    assert options.keys() & {"linears", "attends"} or any(v.kind == "exact" for v in found)


@pytest.mark.skipif(not HAS_INT8, reason="attention stays in floats on a CPU without int8 instructions")
def test_attention_in_8_bits_is_compared(monkeypatch):
    """And a zero point of it that is wrong is found."""
    attention_of, seen = quantized_check.attention_of, [0]

    def then_shift(module):
        found = attention_of(module)
        seen[0] += found is not None
        return found and tuple(affine._replace(zero_point=affine.zero_point ^ 64) for affine in found)

    def cases() -> list[Verdict]:
        return [verdict_of(data_of(8, case), attends=True) for case in WITH_ATTENTION]

    found = cases()
    assert not any(v.kind == "failed" for v in found), found
    monkeypatch.setattr(quantized_check, "attention_of", then_shift)
    found = cases()
    assert seen[0] == len(WITH_ATTENTION)
    # In the others a relu, a norm or the rounding of later layers hides it.
    assert sum(v.kind == "failed" for v in found) > len(found) // 3, found


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
