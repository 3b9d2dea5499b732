"""Rounding a matrix to codes: how far the numbers may be off, and which layers stay."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="transformers is not installed")

import ipex
from ipex.llm._codes import EmbeddingOfCodes, ExpertsOfCodes, Rounding, linear_of, rounded
from ipex.quantization import WeightOnlyLinear, WoqWeightDtype, WoqWeightQScheme
from llm.families import make, quiet  # noqa: F401

mapping = ipex.quantization.get_weight_only_quant_qconfig_mapping


@pytest.mark.parametrize("form", ["int8", "int4", "nf4", "float8_e4m3fn"])
@pytest.mark.parametrize("size", [32, 0])
def test_each_format(form, size):
    """Of the module, in a graph, saved and loaded: as a plain linear of the numbers."""
    weight, bias, x = torch.randn(24, 96), torch.randn(24), torch.randn(3, 96)
    codes = rounded(weight, form, size, form != "int4")
    assert (codes.group_size, codes.scales.shape) == (size or 96, (24, 96 // (size or 96)))
    assert (codes.numbers() - weight).norm() < 0.13 * weight.norm()
    model = nn.Sequential(linear_of(codes, bias), nn.ReLU()).eval()
    expected = nn.functional.linear(x, codes.numbers(), bias).relu()
    torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)
    for optimized in (ipex.jit_optimize(model, x), ipex.optimize(model)):
        torch.testing.assert_close(optimized(x), expected, rtol=1e-5, atol=1e-5)
    again = nn.Sequential(linear_of(rounded(torch.zeros(24, 96), form, size, form != "int4"), bias), nn.ReLU()).eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(x), model(x))
    turned = codes.rows(torch.arange(23, -1, -1))
    assert torch.equal(turned.numbers(), codes.numbers().flip(0))


def test_a_linear_and_a_table_compute_with_the_numbers():
    weight, bias = torch.randn(16, 64), torch.randn(16)
    codes = rounded(weight, "int8", 32, True)
    x = torch.randn(3, 64)
    expected = nn.functional.linear(x, codes.numbers(), bias)
    torch.testing.assert_close(linear_of(codes, bias)(x), expected, rtol=1e-4, atol=1e-4)
    words = torch.tensor([[3, 0], [15, 3]])
    table = EmbeddingOfCodes(linear_of(codes, None))
    torch.testing.assert_close(table(words), codes.numbers()[words], rtol=0, atol=1e-6)
    assert (table.weight.dtype, table.weight.shape) == (torch.float32, codes.codes.shape)
    torch.testing.assert_close(table.weight[words], codes.numbers()[words], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("int8", 32, True), ("int8", 32, True)),
        (("int4", 32, False), ("int8", 32, True)),  # offsets beside none, 4 bits beside 8
        (("int8", 16, True), ("int4", 64, False)),
    ],
)
def test_rows_beside_others(first, second):
    one, other = rounded(torch.randn(12, 128), *first), rounded(torch.randn(20, 128), *second)
    parts = zip(one.numbers().chunk(4), other.numbers().chunk(4))
    expected = torch.cat([torch.cat(part) for part in parts])
    torch.testing.assert_close(one.beside(other, parts=4).numbers(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", ["int8", "int4", "nf4", "float8_e4m3fn"])
@pytest.mark.parametrize("family", ["Mixtral", "Qwen3Moe", "DeepseekV2"])
def test_experts_become_codes(family, form):
    """They compute what transformers' own do with the numbers of the codes, and hold few bytes."""
    model = make(family)
    rounding = Rounding(model)
    (name, own), *_ = [item for item in model.named_modules() if type(item[1]).__name__.endswith("Experts")]
    assert rounding.experts(form, 32, form != "int4") == {}
    experts = model.get_submodule(name)
    assert isinstance(experts, ExpertsOfCodes)
    reference = copy.deepcopy(own)
    for matrix in ("gate_up_proj", "down_proj"):
        of_codes, plain = getattr(experts, matrix), getattr(reference, matrix)
        assert of_codes.codes.nbytes == plain.numel() * (4 if form in ("int4", "nf4") else 8) // 8
        plain.copy_(of_codes.weight.clone())
    x, chosen, weights = torch.randn(7, 64), torch.randn(7, 4).topk(2)[1], torch.rand(7, 2)
    torch.testing.assert_close(experts(x, chosen, weights), reference(x, chosen, weights), rtol=1e-4, atol=1e-4)
    rounding.undo()
    assert model.get_submodule(name) is own


def test_experts_that_compute_otherwise_stay():
    class Clamped(type(make("Mixtral").model.layers[0].mlp.experts)):
        def _apply_gate(self, gate_up):
            return gate_up.clamp(max=1).chunk(2, -1)[0]

    model = make("Mixtral")
    model.model.layers[1].mlp.experts.__class__ = Clamped
    left = Rounding(model).experts("int4", 32, False)
    assert left == {"model.layers.1.mlp.experts": "its experts compute in a way of their own"}
    left = Rounding(make("Mixtral", intermediate_size=48)).experts("int4", 32, False)
    assert left == {f"model.layers.{i}.mlp.experts": "its inputs are no whole number of groups" for i in range(2)}


def test_layers_whose_rows_are_no_whole_groups_stay():
    model = nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 48), nn.Linear(48, 4), nn.LayerNorm(4))
    first, rounding = model[0], Rounding(model)
    assert rounding.linears("int4", 32, False) == ["1", "2"]
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
    nf4, fp8 = mapping(weight_dtype=WoqWeightDtype.NF4), mapping(weight_dtype=WoqWeightDtype.FP8)
    assert (nf4.group_size, nf4.symmetric, fp8.group_size, fp8.symmetric) == (32, True, 0, True)
    assert not mapping(weight_qscheme=WoqWeightQScheme.ASYMMETRIC).symmetric
    asymmetric = {"weight_qscheme": WoqWeightQScheme.ASYMMETRIC}
    for wrong, message in (
        ({"weight_dtype": WoqWeightDtype.NF4, **asymmetric}, "for NF4, got ASYMMETRIC"),
        ({"weight_dtype": WoqWeightDtype.FP8, **asymmetric}, "for FP8, got ASYMMETRIC"),
        ({"weight_dtype": "int3"}, "int3"),
        ({"group_size": 12}, "expected -1 or a multiple of 8 in group_size, got 12"),
    ):
        with pytest.raises(ValueError, match=message):
            mapping(**wrong)
