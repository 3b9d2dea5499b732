"""Rounding a matrix to codes: how far the numbers may be off, and which layers stay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="transformers is not installed")

import ipex
from ipex.llm._codes import EmbeddingOfCodes, Rounding, linear_of, rounded
from ipex.quantization import WeightOnlyLinear, WoqWeightDtype, WoqWeightQScheme

mapping = ipex.quantization.get_weight_only_quant_qconfig_mapping


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_no_number_is_off_by_more_than_half_a_step_but_where_clipping_is_better(bits, symmetric):
    weight = torch.randn(24, 96, generator=torch.Generator().manual_seed(1)) + (0 if symmetric else 0.7)
    codes = rounded(weight, bits, 32, symmetric)
    largest = 2 ** (bits - 1)
    assert -largest <= codes.codes.min() <= codes.codes.max() <= largest - 1
    assert (codes.offsets is None) == symmetric
    groups = weight.unflatten(1, (-1, 32))
    spread = 2 * groups.abs().amax(-1) if symmetric else groups.amax(-1) - groups.amin(-1)
    step = spread / (2 * largest - 1 - symmetric)
    off = (codes.numbers() - weight).unflatten(1, (-1, 32))
    plain = step**2 / 12 * 32  # the sum of squares that rounding by this step costs, about
    assert (off.square().sum(-1) <= 2 * plain).all()
    if bits == 8:
        assert (off.abs() <= step.unsqueeze(-1) / 2 + 1e-6).all()


def test_numbers_that_are_all_the_same_or_zero():
    for value in (0.0, 3.0, -2.0):
        for symmetric in (True, False):
            weight = torch.full((2, 32), value)
            torch.testing.assert_close(rounded(weight, 4, 32, symmetric).numbers(), weight, rtol=1e-5, atol=1e-30)


def test_a_linear_and_a_table_compute_with_the_numbers():
    weight, bias = torch.randn(16, 64), torch.randn(16)
    codes = rounded(weight, 4, 32, False)
    x = torch.randn(3, 64)
    expected = nn.functional.linear(x, codes.numbers(), bias)
    torch.testing.assert_close(linear_of(codes, bias)(x), expected, rtol=1e-4, atol=1e-4)
    words = torch.tensor([[3, 0], [15, 3]])
    table = EmbeddingOfCodes(codes, torch.float32)
    torch.testing.assert_close(table(words), codes.numbers()[words], rtol=0, atol=1e-6)


def test_layers_whose_rows_are_no_whole_groups_stay():
    model = nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 48), nn.Linear(48, 4), nn.LayerNorm(4))
    first, rounding = model[0], Rounding(model)
    assert rounding.linears(4, 32, False) == ["1", "2"]
    assert isinstance(model[0], WeightOnlyLinear)
    assert type(model[1]) is nn.Linear
    rounding.undo()
    assert model[0] is first


def test_what_a_mapping_says():
    plain = mapping()
    assert (plain.weight_dtype, plain.group_size, plain.symmetric) == (WoqWeightDtype.INT8, 0, True)
    int4 = mapping(weight_dtype=WoqWeightDtype.INT4)
    assert (int4.group_size, int4.symmetric) == (32, False)
    assert mapping(weight_dtype=WoqWeightDtype.INT4, group_size=64).group_size == 64
    assert not mapping(weight_qscheme=WoqWeightQScheme.ASYMMETRIC).symmetric
    for wrong, message in (
        ({"weight_dtype": WoqWeightDtype.NF4}, "expected INT8 or INT4 in weight_dtype, got NF4"),
        ({"weight_dtype": "int3"}, "int3"),
        ({"group_size": 12}, "expected -1 or a multiple of 8 in group_size, got 12"),
    ):
        with pytest.raises(ValueError, match=message):
            mapping(**wrong)
